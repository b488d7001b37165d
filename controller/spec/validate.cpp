#include <algorithm>
#include <filesystem>

#include "core/utf8.h"
#include "spec/fields.h"
#include "spec/findings.h"
#include "spec/spec.h"

namespace spec {
namespace {

namespace fs = std::filesystem;
using muster::v1::JobSpec;

constexpr int kMostArguments = 4096;

std::string number(std::uint64_t value) {
  return std::to_string(value);
}

void check_ranges(const JobSpec& spec, Findings& findings) {
  for (const auto& field : fields()) {
    if (!is_plain(field)) continue;
    if (is_recipe_field(field) && !spec.has_recipe()) continue;
    const auto value = get(spec, field);
    if (!value) {
      if (field.kind == Kind::kName) findings.add({"name", "", "want " + wanted(field), "add name = \"my-job\"", {}});
      continue;
    }
    if (!allowed(field, *value)) findings.add(field.key, "want " + wanted(field), "");
  }
}

/// Multiples of `unit` around `value`, as advice.
std::string multiples_near(std::uint64_t value, std::uint64_t unit) {
  const auto below = value / unit * unit;
  return "try " + (below > 0 ? number(below) + " or " : "") + number(below + unit);
}

void check_batch(const JobSpec& spec, Findings& findings) {
  const auto& train = spec.recipe().train();
  const std::uint64_t ranks = world_size(spec), micro = train.micro_batch_size();
  if (ranks == 0 || ranks > kMostRanks || micro == 0 || train.batch_size() % (micro * ranks) == 0) return;
  findings.add("train.batch_size",
               "want a multiple of " + number(micro * ranks) + " (micro_batch_size " + number(micro) + " x " +
                   number(ranks) + (ranks == 1 ? " rank)" : " ranks)"),
               multiples_near(train.batch_size(), micro * ranks),
               {"train.micro_batch_size", "resources.nodes", "resources.ranks_per_node"});
}

void check_train(const JobSpec& spec, Findings& findings) {
  const auto& train = spec.recipe().train();
  check_batch(spec, findings);
  if (train.min_learning_rate() > train.learning_rate()) {
    const auto& field = *find_field("train.learning_rate");
    findings.add("train.min_learning_rate", "want at most learning_rate = " + print(field, train.learning_rate()),
                 "lower it, or leave it out for a tenth of learning_rate", {"train.learning_rate"});
  }
  if (train.warmup_steps() > train.steps()) {
    findings.add("train.warmup_steps", "want at most steps = " + number(train.steps()),
                 "lower it, or leave it out for a tenth of steps", {"train.steps"});
  }
}

void check_model(const JobSpec& spec, Findings& findings) {
  const auto& model = spec.recipe().model();
  const std::uint64_t hidden = model.hidden_size(), heads = model.num_attention_heads();
  if (heads != 0 && hidden % heads != 0) {
    // An odd width a head would be refused next: advise what passes.
    findings.add("model.hidden_size", "want a multiple of num_attention_heads = " + number(heads),
                 multiples_near(hidden, 2 * heads), {"model.num_attention_heads"});
  } else if (heads != 0 && hidden / heads % 2 != 0) {
    findings.add(
        "model.hidden_size",
        "want an even number a head for the rotary embedding, not hidden_size / heads = " + number(hidden / heads),
        multiples_near(hidden, 2 * heads), {"model.num_attention_heads"});
  }
  const std::uint64_t pairs = model.num_key_value_heads();
  if (pairs != 0 && heads % pairs != 0) {
    findings.add("model.num_key_value_heads", "want a divisor of num_attention_heads = " + number(heads),
                 "leave it out for one a query head", {"model.num_attention_heads"});
  }
  const auto length = spec.recipe().data().sequence_length();
  if (length > model.max_position_embeddings()) {
    findings.add("data.sequence_length",
                 "want at most model.max_position_embeddings = " + number(model.max_position_embeddings()),
                 "shorten it, or leave max_position_embeddings out", {"model.max_position_embeddings"});
  }
}

void check_data(const JobSpec& spec, FileChecks checks, Findings& findings) {
  const auto& data = spec.recipe().data();
  if (data.source() != "folder") {
    if (!data.path().empty()) {
      findings.add("data.path", "want no path with source = \"" + data.source() + "\"",
                   "set data.source = \"folder\", or leave the path out", {"data.source"});
    }
    return;
  }
  if (data.path().empty()) {
    findings.add({"data.path",
                  "",
                  "want the folder of text files that source = \"folder\" reads",
                  "add path = \"...\"",
                  {"data.source"}});
  } else if (std::error_code error; checks == FileChecks::kLook && !fs::is_directory(data.path(), error)) {
    findings.add("data.path", "want a folder; there is none of this name", "create it, or correct the path");
  }
}

/// Whether the program is there is only known where the job runs: its first start tells.
void check_command(const JobSpec& spec, Findings& findings) {
  const auto& argv = spec.command().argv();
  if (argv.empty() || argv[0].empty()) {
    findings.add({"command",
                  argv.empty() ? "[]" : "[\"\"]",
                  "want a program and its arguments",
                  "such as command = [\"python3\", \"train.py\"]",
                  {}});
    return;
  }
  if (argv.size() > kMostArguments || !std::all_of(argv.begin(), argv.end(), is_c_text)) {
    findings.add({"command",
                  argv[0].substr(0, kLongestValue),
                  "want at most 4096 arguments, each without NUL and under 128 KiB",
                  "put long arguments into a file that the program reads",
                  {}});
    return;
  }
}

void check_folders(const JobSpec& spec, FileChecks checks, Findings& findings) {
  std::error_code error;
  const auto& working = spec.working_folder();
  if (!working.empty() && checks == FileChecks::kLook && !fs::is_directory(working, error)) {
    findings.add("working_folder", "want a folder; there is none of this name", "create it, or correct the path");
  }
  const auto& checkpoints = spec.checkpoint().folder();
  if (!checkpoints.empty() && checks == FileChecks::kLook && fs::exists(checkpoints, error) &&
      !fs::is_directory(checkpoints, error)) {
    findings.add("checkpoint.folder", "want a folder; this is something else", "choose another path");
  }
  for (const auto& field : fields()) {
    if (field.kind != Kind::kPath) continue;
    const auto value = get(spec, field);
    if (!value) continue;
    const auto& path = std::get<std::string>(*value);
    if (!core::is_utf8(path)) {
      findings.add(field.key, "want a path in UTF-8", "rename the folder or file that is not, or choose another path");
    } else if (!fs::path(path).is_absolute()) {
      findings.add(field.key, "want an absolute path", "relative paths exist in job files only; muster resolves them");
    }
  }
}

void check_times(const JobSpec& spec, Findings& findings) {
  const auto& liveness = spec.liveness();
  const auto duration = [](std::string_view key, std::int64_t value) { return print(*find_field(key), value); };
  if (liveness.silent_after_ms() < 2 * liveness.heartbeat_interval_ms()) {
    findings.add("liveness.silent_after",
                 "want at least twice heartbeat_interval = " +
                     duration("liveness.heartbeat_interval", liveness.heartbeat_interval_ms()),
                 "or one late heartbeat would end the attempt", {"liveness.heartbeat_interval"});
  }
  if (liveness.silent_after_vouched_ms() < liveness.silent_after_ms()) {
    findings.add("liveness.silent_after_vouched",
                 "want at least silent_after = " + duration("liveness.silent_after", liveness.silent_after_ms()),
                 "lengthen it, or leave it out", {"liveness.silent_after"});
  }
  const auto& requeue = spec.requeue();
  if (requeue.backoff_max_ms() < requeue.backoff_initial_ms()) {
    findings.add("requeue.backoff_max",
                 "want at least backoff_initial = " + duration("requeue.backoff_initial", requeue.backoff_initial_ms()),
                 "lengthen it, or leave it out", {"requeue.backoff_initial"});
  }
}

void check_program(const JobSpec& spec, FileChecks checks, Findings& findings) {
  switch (spec.program_case()) {
    case JobSpec::kCommand:
      return check_command(spec, findings);
    case JobSpec::kRecipe:
      check_model(spec, findings);
      check_data(spec, checks, findings);
      return check_train(spec, findings);
    case JobSpec::PROGRAM_NOT_SET:
      findings.add({"",
                    "",
                    "want something to run",
                    "add command = [\"python3\", \"train.py\"], or a [train] table for the built-in recipe",
                    {}});
  }
}

}  // namespace

std::vector<Problem> validate(const JobSpec& spec, FileChecks checks) {
  Findings findings(spec);
  check_ranges(spec, findings);
  if (world_size(spec) > kMostRanks) {
    findings.add("resources.nodes",
                 "want at most " + number(kMostRanks) + " ranks, not " + number(spec.resources().nodes()) + " x " +
                     number(spec.resources().ranks_per_node()) + " = " + number(world_size(spec)),
                 "lower nodes or ranks_per_node", {"resources.ranks_per_node"});
  }
  check_program(spec, checks, findings);
  check_folders(spec, checks, findings);
  check_variables(spec, findings);
  check_times(spec, findings);
  check_slurm(spec, checks, findings);
  check_start(spec, findings);
  return findings.take();
}

std::string to_string(const Problem& problem) {
  std::string text = problem.field;
  if (!problem.value.empty()) {
    text += (text.empty() ? "\"" : " \"") + problem.value.substr(0, kLongestValue) +
            (problem.value.size() > kLongestValue ? "...\"" : "\"");
  }
  if (!text.empty()) text += ": ";
  text += problem.message;
  if (!problem.remedy.empty()) text += "; " + problem.remedy;
  return text;
}

}  // namespace spec
