#include "spec/jobfile/validate.h"

#include <algorithm>
#include <array>
#include <filesystem>

#include "base/words.h"
#include "spec/log_pattern.h"
#include "spec/rank_path.h"
#include "spec/report_keys.h"
#include "spec/series.h"
#include "spec/tables/checkpoint_keys.h"

namespace jobfile {
namespace {

namespace fs = std::filesystem;
using muster::v1::JobSpec;

constexpr int kMostArguments = 4096;

/// All but the values of recipes, which check_recipe_values() compares with the rows of the job's own family.
void check_ranges(const JobSpec& spec, Findings& findings) {
  for (const auto* key : plain_keys_of(spec)) {
    const auto& field = *key;
    const auto given = get(spec, field), value = given ? spec::as_kind(field, *given) : std::nullopt;
    if (given && !value) {
      findings.add(field.name, "want " + wanted(field), "");
      continue;
    }
    if (!value) {
      if (field.kind == Kind::kName) findings.add_value("name", "", "want " + wanted(field), "add name = \"my-job\"");
      continue;
    }
    if (!allowed(field, *value)) findings.add(field.name, "want " + wanted(field), "");
  }
}

/// "llama, gpt_neox"; empty: there is no recipe of this kind.
std::string families_of(std::string_view kind) {
  std::string list;
  for (const auto& recipe : spec::recipes()) {
    if (recipe.kind != kind) continue;
    for (const auto* family : recipe.families) base::append(list, family->name);
  }
  return list;
}

/// Checks a recipe's values, which an older or newer muster or another client may have written.
void check_recipe_values(const JobSpec& spec, Findings& findings) {
  const auto& recipe = spec.recipe();
  if (!recipe.GetReflection()->GetUnknownFields(recipe).empty()) {
    findings.add_value(
        "", "", "this recipe was written by another version of muster, in a form that this controller does not know",
        "submit it with the muster of this controller's version");
  }
  const auto tables = tables_of(recipe);
  const auto families = families_of(recipe.kind());
  if (tables.empty() && !families.empty()) {
    findings.add(spec::family_key().name, "want a family of the recipe " + recipe.kind() + ": " + families,
                 "change it, or leave it out", {"train.recipe"});
    return;  // which keys there are depends on it
  }
  for (const auto& [name, message] : sorted(recipe.values())) {
    const auto* key = spec::find_key(tables, name);
    if (key == nullptr) {
      const auto* other = find_key(name);
      findings.add_value(name, "", other == nullptr ? unknown_key(name) : "this recipe and family have no such key",
                         other == nullptr ? "" : "remove it", {"train.recipe", "model.family"});
    } else if (const auto given = get(spec, *key), value = given ? spec::as_kind(*key, *given) : std::nullopt;
               !value || !allowed(*key, *value)) {
      findings.add(name, "want " + wanted(*key), "");
    }
  }
}

void want_folder(const char* key, std::string_view path, FileChecks checks, Findings& findings) {
  std::error_code error;
  if (path.empty() || checks == FileChecks::kSkip || fs::is_directory(path, error)) return;
  findings.add(key, "want a folder that exists", "create it, or correct the path");
}

void check_recipe(const JobSpec& spec, FileChecks checks, Findings& findings) {
  check_recipe_values(spec, findings);
  const auto tables = tables_of(spec.recipe());
  const auto values = values_of(spec, tables);
  const auto ranks = world_size(spec) <= kMostRanks ? world_size(spec) : 0;
  const auto add = [&](const spec::Conflict& conflict) {
    findings.add(conflict.key, conflict.want, conflict.remedy, conflict.related);
  };
  std::ranges::for_each(spec::conflicts_of(values, tables, ranks), add);
  auto with_checkpoints = tables;
  with_checkpoints.push_back(&spec::checkpoints());
  std::ranges::for_each(
      spec::conflicts_of_best(spec::series_of(spec.recipe().kind()), values_of(spec, with_checkpoints)), add);
  if (values.text("data.source") == "folder") want_folder("data.path", values.text("data.path"), checks, findings);
}

/// Does not check that the program exists. Only the machine where the job runs can know that.
void check_command(const JobSpec& spec, Findings& findings) {
  const auto& argv = spec.command().argv();
  if (argv.empty() || argv[0].empty()) {
    findings.add_value("command", argv.empty() ? "[]" : "[\"\"]", "want a program and its arguments",
                       "such as command = [\"python3\", \"train.py\"]");
    return;
  }
  if (argv.size() > kMostArguments || !std::all_of(argv.begin(), argv.end(), is_c_text)) {
    findings.add_value("command", argv[0].substr(0, kLongestValue),
                       "want at most 4096 arguments, each without NUL and under 128 KiB",
                       "put long arguments into a file that the program reads");
    return;
  }
}

void check_folders(const JobSpec& spec, FileChecks checks, Findings& findings) {
  want_folder("working_folder", spec.working_folder(), checks, findings);
  std::error_code error;
  const auto& checkpoints = spec.checkpoint().folder();
  if (!checkpoints.empty() && checks == FileChecks::kLook && fs::exists(checkpoints, error) &&
      !fs::is_directory(checkpoints, error)) {
    findings.add("checkpoint.folder", "want a folder; this is a file", "choose another path");
  }
  for (const auto* key : path_keys()) {
    const auto& field = *key;
    const auto value = get(spec, field);
    if (!value) continue;
    const auto& path = std::get<std::string>(*value);
    if (!base::is_utf8(path)) {
      findings.add(field.name, "want a path in UTF-8", "rename the folder or file, or choose another path");
    } else if (!fs::path(path).is_absolute()) {
      findings.add(field.name, "want an absolute path", "relative paths exist in job files only; muster resolves them");
    }
  }
}

void check_times(const JobSpec& spec, Findings& findings) {
  struct AtLeast {
    const Key* key;
    int times;
    const Key* other;
    const char* remedy;
  };
  // Looked up once, as a sweep has ten thousand jobs.
  static const std::array kRules{
      AtLeast{find_key("liveness.silent_after"), 2, find_key("liveness.heartbeat_interval"),
              "otherwise one late heartbeat would end the attempt"},
      AtLeast{find_key("liveness.silent_after_vouched"), 1, find_key("liveness.silent_after"),
              "lengthen it, or leave it out"},
      AtLeast{find_key("liveness.lost_after"), 1, find_key("liveness.silent_after_vouched"),
              "lengthen it, or leave it out"},
      AtLeast{find_key("requeue.backoff_max"), 1, find_key("requeue.backoff_initial"), "lengthen it, or leave it out"}};
  for (const auto& rule : kRules) {
    const auto ms_of = [&](const Key& field) {
      const auto value = get(spec, field);
      return value ? std::get<std::int64_t>(*value) : 0;
    };
    const auto other = ms_of(*rule.other);
    if (ms_of(*rule.key) >= rule.times * other) continue;
    findings.add(rule.key->name,
                 std::string("want at least ") + (rule.times == 2 ? "twice " : "") + leaf_of(rule.other->name) + " = " +
                     print(*rule.other, other),
                 rule.remedy, {std::string(rule.other->name)});
  }
}

void check_launcher(const JobSpec& spec, Findings& findings) {
  if (spec.launcher() != "own" && !is_batch(spec)) return;
  if (spec.has_recipe()) {
    return findings.add("launcher", "want muster: a recipe starts no ranks itself", "leave it out", {"train.recipe"});
  }
  if (is_batch(spec) && spec.executor() == "debug") {
    return findings.add("executor", "want auto, slurm or local: a script's srun needs an attempt of musterd",
                        "leave it out", {"launcher"});
  }
  if (is_batch(spec) || spec.resources().ranks_per_node() == 1) return;
  findings.add("launcher", "own starts the command once on each node; it starts its ranks itself",
               "leave out resources.ranks_per_node, and tell the command how many ranks it is to start",
               {"resources.ranks_per_node"});
}

void check_program(const JobSpec& spec, FileChecks checks, Findings& findings) {
  switch (spec.program_case()) {
    case JobSpec::kCommand:
      return check_command(spec, findings);
    case JobSpec::kRecipe:
      return check_recipe(spec, checks, findings);
    case JobSpec::PROGRAM_NOT_SET:
      findings.add_value("", "", "want something to run",
                         "add command = [\"python3\", \"train.py\"], or a [train] table for the built-in recipe");
  }
}

constexpr std::size_t kLongestPath = 1024;
constexpr const char* kCheckpoints = "report.checkpoints";
constexpr const char* kTensorboard = "report.tensorboard";
constexpr const char* kLog = "report.log";

void check_path(const char* key, const std::string& path, Findings& findings) {
  if (path.empty()) return;
  if (path.size() > kLongestPath) {
    return findings.add(key, "want at most " + std::to_string(kLongestPath) + " bytes", "write a shorter path");
  }
  if (!base::is_utf8(path)) return findings.add(key, "want a path in UTF-8", "rename the folder or file");
  if (path.starts_with("~")) {
    return findings.add(key, "want a path without \"~\"", "write $HOME" + path.substr(1));
  }
  const auto expanded = spec::expand_rank_path(path, [](const std::string&) { return ""; });
  if (!expanded.problem.empty()) findings.add(key, expanded.problem, "such as ${MUSTER_JOB_ID}");
}

/// True if a name of the path has a [ without its ]. A shell takes such a [ for the character itself.
bool has_open_bracket(const std::string& path) {
  for (std::size_t at = 0; at < path.size(); ++at) {
    if (path[at] == '\\') {
      ++at;
    } else if (path[at] == '[') {
      auto first = at + 1;  // a ] that comes first, or after a !, is a member
      if (first < path.size() && (path[first] == '!' || path[first] == '^')) ++first;
      const auto end = path.find(']', first + 1);
      if (end == std::string::npos || path.find('/', at) < end) return true;
      at = end;
    }
  }
  return false;
}

void check_checkpoints(const std::string& path, Findings& findings) {
  check_path(kCheckpoints, path, findings);
  if (path.find("**") != std::string::npos) {
    findings.add(kCheckpoints, "want a * for one name of the path", "write each folder as a * of its own, such as */*");
  } else if (!path.empty() && path.find_first_not_of("/.*") == std::string::npos) {
    findings.add(kCheckpoints, "want the names of checkpoints alone", "such as ckpt/step-*");
  } else if (has_open_bracket(path)) {
    findings.add(kCheckpoints, "want a ] for each [ of a name", "write [[] for the character [ itself");
  }
}

void check_tensorboard(const std::string& path, Findings& findings) {
  check_path(kTensorboard, path, findings);
  if (path.find_first_of("*?[") != std::string::npos) {
    findings.add(kTensorboard, "want one folder, without wildcards",
                 "name the folder above; event files in its folders are read, too");
  }
}

void check_pattern(const std::string& name, const std::string& text, Findings& findings) {
  const auto key = std::string(kLog) + "." + name;
  if (!spec::is_of_the_run(name) && spec::is_report_key(name)) {
    return findings.add_value(key, text, "want the name of a series; this name has a meaning of its own in reports",
                              "choose another name");
  }
  if (!spec::is_series_name(name)) {
    return findings.add_value(key, text,
                              "want the name of a series: letters, digits and . _ - / @ + : %, at most " +
                                  std::to_string(spec::kLongestSeries),
                              "choose another name");
  }
  const spec::LogPattern pattern(text);
  if (!pattern.problem().empty()) findings.add_value(key, text, pattern.problem(), pattern.remedy());
}

/// The tables of the keys, where a recipe has one of them.
void check_of_recipe(const JobSpec& spec, Findings& findings) {
  constexpr const char* kWant = "want a command; a recipe reports by itself";
  constexpr const char* kRemedy = "remove [report]";
  const auto& report = spec.report();
  for (const auto* key : std::array{kCheckpoints, kTensorboard}) {
    if (get(spec, *find_key(key))) return findings.add(key, kWant, kRemedy, {"train.recipe"});
  }
  if (report.log_size() > 0) findings.add_value(kLog, "", kWant, kRemedy, {"train.recipe"});
}

/// Checks where the reports of a program are found.
void check_report(const JobSpec& spec, Findings& findings) {
  const auto& report = spec.report();
  if (spec.has_recipe()) return check_of_recipe(spec, findings);
  check_checkpoints(report.checkpoints(), findings);
  check_tensorboard(report.tensorboard(), findings);
  if (findings.too_many(kLog, static_cast<std::size_t>(report.log_size()), spec::kMostPatterns, "patterns")) return;
  for (const auto& [name, text] : sorted(report.log())) check_pattern(name, text, findings);
}

}  // namespace

std::vector<Problem> validate(const JobSpec& spec, FileChecks checks) {
  Findings findings(spec);
  check_ranges(spec, findings);
  const auto nodes = spec.resources().nodes(), of_node = spec.resources().ranks_per_node();
  if (const auto ranks = std::uint64_t{nodes} * of_node; ranks > kMostRanks) {
    findings.add("resources.nodes",
                 "want at most " + std::to_string(kMostRanks) + " ranks, not " + std::to_string(nodes) + " x " +
                     std::to_string(of_node) + " = " + std::to_string(ranks),
                 "lower nodes or ranks_per_node", {"resources.ranks_per_node"});
  }
  check_program(spec, checks, findings);
  check_launcher(spec, findings);
  check_folders(spec, checks, findings);
  check_variables(spec, findings);
  check_times(spec, findings);
  check_slurm(spec, checks, findings);
  check_report(spec, findings);
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

Finding finding_of(const std::string& place, const std::string& shown, const std::string& said) {
  const auto end = said.find("; ");
  return {place,
          "",
          "",
          said.substr(0, end),
          end == std::string::npos ? "" : said.substr(end + 2),
          place + ": " + shown + said};
}

}  // namespace jobfile
