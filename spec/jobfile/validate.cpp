#include <algorithm>
#include <array>
#include <filesystem>
#include <map>

#include "base/utf8.h"
#include "spec/jobfile/findings.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/spec.h"
#include "spec/tables/checkpoints.h"

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
    for (const auto* family : recipe.families) list += (list.empty() ? "" : ", ") + std::string(family->name);
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
  for (const auto& conflict : spec::conflicts_of(values, tables, ranks)) {
    findings.add(conflict.key, conflict.want, conflict.remedy, conflict.related);
  }
  auto with_checkpoints = tables;
  with_checkpoints.push_back(&spec::checkpoints());
  for (const auto& conflict :
       spec::conflicts_of_best(spec::series_of(spec.recipe().kind()), values_of(spec, with_checkpoints))) {
    findings.add(conflict.key, conflict.want, conflict.remedy, conflict.related);
  }
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
  if (spec.launcher() != "own") return;
  if (spec.has_recipe()) {
    return findings.add("launcher", "want muster: a recipe starts no ranks itself", "leave it out", {"train.recipe"});
  }
  if (spec.resources().ranks_per_node() == 1) return;
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

}  // namespace

std::vector<Problem> validate(const JobSpec& spec, FileChecks checks) {
  Findings findings(spec);
  check_ranges(spec, findings);
  if (world_size(spec) > kMostRanks) {
    findings.add("resources.nodes",
                 "want at most " + std::to_string(kMostRanks) + " ranks, not " +
                     std::to_string(spec.resources().nodes()) + " x " +
                     std::to_string(spec.resources().ranks_per_node()) + " = " + std::to_string(world_size(spec)),
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
