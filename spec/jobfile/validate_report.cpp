#include <algorithm>
#include <array>
#include <filesystem>

#include "base/utf8.h"
#include "spec/jobfile/findings.h"
#include "spec/jobfile/job_keys.h"
#include "spec/log_pattern.h"
#include "spec/rank_path.h"
#include "spec/report_keys.h"
#include "spec/series.h"

namespace jobfile {
namespace {

using muster::v1::JobSpec;

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

}  // namespace

void check_report(const JobSpec& spec, Findings& findings) {
  const auto& report = spec.report();
  if (spec.has_recipe()) return check_of_recipe(spec, findings);
  check_checkpoints(report.checkpoints(), findings);
  check_tensorboard(report.tensorboard(), findings);
  if (findings.too_many(kLog, static_cast<std::size_t>(report.log_size()), spec::kMostPatterns, "patterns")) return;
  for (const auto& [name, text] : sorted(report.log())) check_pattern(name, text, findings);
}

}  // namespace jobfile
