#include "spec/jobfile/spec.h"

#include <algorithm>
#include <array>
#include <filesystem>
#include <span>

#include "base/words.h"
#include "spec/jobfile/job_keys.h"
#include "spec/variables.h"

namespace jobfile {
namespace {

using muster::v1::JobSpec;

constexpr std::int64_t kBackoffMaxMs = 300'000;
constexpr std::int64_t kVouchedMs = 15'000;
constexpr std::int64_t kLostMs = 10 * 60 * 1000;

void fill_recipe(JobSpec& spec) {
  auto& recipe = *spec.mutable_recipe();
  if (recipe.family().empty()) recipe.set_family(std::string(spec::first_family(recipe.kind())));
  const auto tables = tables_of(spec.recipe());
  auto values = values_of(spec, tables);
  spec::fill_defaults(values, tables, world_size(spec));
  for (const auto& [name, value] : values) {
    if (const auto* key = spec::find_key(tables, name)) set(spec, *key, value);
  }
}

/// A folder that a recipe reads.
struct Input {
  std::string_view key;
  const char* file;  // what the folder has once it can be used
  const char* remedy;
};

constexpr std::array kInputs = {
    Input{"data.prepared", "data.json", "muster data prepare must have finished there before the job starts"},
    Input{spec::kPretrained, "config.json", "the model must be there before the job starts"}};

/// Keys that need a program that reports its steps.
constexpr std::array kForSteps = {"liveness.hung_after", "requeue.max_rank_hung"};
/// Keys that only muster-worker obeys.
constexpr std::array kForRecipes = {"liveness.join_within", "checkpoint.every_steps", "checkpoint.keep",
                                    "checkpoint.asynchronous", "checkpoint.best"};
/// Keys about ranks that are not heard. The processes of a program on this machine are seen, and need not be heard.
constexpr std::array kForUnheard = {"liveness.silent_after_vouched", "liveness.lost_after"};

/// The spec as it would be without these keys.
JobSpec without_wishes(const JobSpec& spec) {
  JobSpec plain;
  *plain.mutable_command() = spec.command();
  plain.mutable_liveness()->set_silent_after_ms(spec.liveness().silent_after_ms());
  fill_defaults(plain);
  return plain;
}

/// "liveness.hung_after has", "checkpoint.keep, checkpoint.best have"; empty: there are no names.
std::string with_verb(const std::vector<std::string>& names) {
  return names.empty() ? "" : base::joined(names) + (names.size() == 1 ? " has" : " have");
}

/// Those of the keys that the spec sets to another value than `plain`, as with_verb() has it.
std::string asked_for(const JobSpec& spec, const JobSpec& plain, std::span<const char* const> keys) {
  std::vector<std::string> found;
  for (const char* key : keys) {
    const auto value = get(spec, *find_key(key));
    if (value && value != get(plain, *find_key(key))) found.emplace_back(key);
  }
  return with_verb(found);
}

/// The keys by which the spec asks something of Slurm, as with_verb() has them.
std::string asked_of_slurm(const JobSpec& spec) {
  std::vector<std::string> found;
  for (const auto& key : job_keys()) {
    // The number of elements that run at once holds anywhere.
    if (table_of(key.name) != "slurm" || key.name == "slurm.array_parallelism") continue;
    // A local job of a script has the link to its log, too.
    if (key.name == "slurm.output" && is_batch(spec)) continue;
    if (key.kind == Kind::kOptions) {
      for (const auto& [name, value] : sorted(texts_by_name(spec, key))) {
        found.push_back(std::string(key.name) + "." + name);
      }
    } else if (is_plain(key) ? get(spec, key).has_value() : !texts_of(spec, key).empty()) {
      found.emplace_back(key.name);
    }
  }
  return with_verb(found);
}

void mask(google::protobuf::Map<std::string, std::string>& variables) {
  for (auto& [name, value] : variables) value = spec::shown_value(name, value);
}

}  // namespace

std::string as_job_name(std::string text) {
  const auto& key = *find_key("name");
  for (char& c : text) {
    if (!allowed(key, std::string(1, c))) c = '-';
  }
  return text.empty() ? "job" : text.substr(0, spec::kLongestName);
}

bool is_batch(const JobSpec& spec) {
  return spec.launcher() == "batch";
}

std::uint64_t world_size(const JobSpec& spec) {
  if (is_batch(spec)) return 1;
  return std::uint64_t{spec.resources().nodes()} * spec.resources().ranks_per_node();
}

void fill_defaults(JobSpec& spec) {
  google::protobuf::Message& fields = spec;
  for (const auto& [key, value, is_of_recipe] : plain_standards()) {
    if ((is_of_recipe && !spec.has_recipe()) || get(fields, *key)) continue;
    set(fields, *key, value);
  }
  if (spec.environment().empty()) spec.set_environment(spec.has_recipe() ? "clean" : "submit");
  if (spec.has_recipe()) fill_recipe(spec);
  auto& requeue = *spec.mutable_requeue();
  if (requeue.backoff_max_ms() == 0) {
    requeue.set_backoff_max_ms(std::max(kBackoffMaxMs, requeue.backoff_initial_ms()));
  }
  for (auto& job : *spec.mutable_after()) {
    if (!job.empty() && job.find_first_not_of("0123456789") == std::string::npos) job = "succeeded:" + job;
  }
  auto& liveness = *spec.mutable_liveness();
  if (liveness.silent_after_vouched_ms() == 0) {
    liveness.set_silent_after_vouched_ms(std::max(kVouchedMs, liveness.silent_after_ms()));
  }
  if (liveness.lost_after_ms() == 0) {
    liveness.set_lost_after_ms(std::max(kLostMs, liveness.silent_after_vouched_ms()));
  }
}

std::vector<std::string> idle_keys(const JobSpec& spec, bool reports, bool is_local) {
  std::vector<std::string> notes;
  if (slurm_whole(spec, "array_parallelism") > 0 && !spec.has_sweep()) {
    notes.push_back("slurm.array_parallelism has no effect on a job that is not of a sweep");
  }
  if (const auto keys = asked_of_slurm(spec); is_local && !keys.empty()) {
    notes.push_back(keys + " no effect on local processes");
  }
  if (!spec.has_command()) return notes;
  const auto plain = without_wishes(spec);
  if (const auto keys = asked_for(spec, plain, kForSteps); !keys.empty() && !reports) {
    notes.push_back(keys + " no effect while this program reports no steps");
  }
  if (const auto keys = asked_for(spec, plain, kForUnheard); !keys.empty() && is_local) {
    notes.push_back(keys + " no effect on local processes of a program of your own");
  }
  if (const auto keys = asked_for(spec, plain, kForRecipes); !keys.empty()) {
    notes.push_back(keys + " no effect on a program of your own");
  }
  return notes;
}

std::vector<std::string> missing_inputs(const muster::v1::JobSpec& spec) {
  if (!spec.has_recipe()) return {};
  const auto values = values_of(spec, tables_of(spec.recipe()));
  std::vector<std::string> found;
  for (const auto& input : kInputs) {
    if (!values.has(input.key)) continue;
    const std::filesystem::path folder = values.text(input.key);
    std::error_code error;
    if (folder.empty() || std::filesystem::exists(folder / input.file, error) || error) continue;
    found.push_back(std::string(input.key) + " = \"" + folder.native() + "\" has no " + input.file +
                    " on this machine; " + input.remedy);
  }
  return found;
}

void mask_secrets(muster::v1::SweepElement& element) {
  for (auto& [key, value] : *element.mutable_settings()) {
    const auto dot = key.find('.');
    const auto table = key.substr(0, dot);
    if (table == "env" || table == "submitted_env") value = spec::shown_value(key.substr(dot + 1), value);
  }
}

void mask_secrets(muster::v1::JobSpec& spec) {
  mask(*spec.mutable_env());
  mask(*spec.mutable_submitted_env());
  if (spec.has_sweep()) mask_secrets(*spec.mutable_sweep());
}

}  // namespace jobfile
