#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/spec.h"

namespace jobfile {

inline constexpr std::size_t kLongestValue = 80;           // a longer value is cut in a problem
inline constexpr std::size_t kMostTextBytes = 128 * 1024;  // Linux's limit for one argument or variable

/// Collects the problems that validate() finds. Values are shown as people write them.
class Findings {
 public:
  explicit Findings(const muster::v1::JobSpec& spec) : spec_(spec) {}

  /// Adds a problem of a value that is no plain key's: a part of an array or table, or the whole job.
  void add_value(std::string key, std::string value, std::string message, std::string remedy = "",
                 std::vector<std::string> related = {}) {
    if (found_.size() == kMostProblems) return;
    found_.push_back({std::move(key), std::move(value), std::move(message), std::move(remedy), std::move(related)});
  }
  /// Adds a problem of a plain key, with its value.
  void add(std::string_view key, std::string message, std::string remedy, std::vector<std::string> related = {}) {
    const auto* field = find_key(key);
    const auto value = get(spec_, *field);
    add_value(std::string(key), value ? print(*field, *value) : "", std::move(message), std::move(remedy),
              std::move(related));
  }
  /// Refuses more than `most` entries of an array or a table. Returns true if there are so many.
  bool too_many(const std::string& key, std::size_t count, std::size_t most, const std::string& entries,
                std::string remedy = "") {
    if (count <= most) return false;
    add_value(key, std::to_string(count) + " " + entries, "want at most " + std::to_string(most), std::move(remedy));
    return true;
  }
  std::vector<Problem> take() { return std::move(found_); }

 private:
  const muster::v1::JobSpec& spec_;
  std::vector<Problem> found_;
};

/// True if a program can get the text as an argument or a variable.
inline bool is_c_text(const std::string& text) {
  return text.find('\0') == std::string::npos && text.size() < kMostTextBytes;
}

/// Checks the variables that ranks get.
void check_variables(const muster::v1::JobSpec& spec, Findings& findings);
/// Checks the options for sbatch.
void check_slurm(const muster::v1::JobSpec& spec, FileChecks checks, Findings& findings);
/// Why `[slurm.options]` may not have this option, with the key to use instead; empty: it may. Refuses options that
/// muster sets itself, and names that sbatch takes as abbreviations of them.
std::string refuse_slurm_option(std::string_view name);
/// The replacement for an option of sbatch that muster sets itself: "use resources.time_limit".
/// `name` may have "_" for "-".
/// Empty: it is no such option.
std::string instead_of_slurm_option(std::string_view name);

/// Checks the keys that say where and when the job starts: executor, after, hold.
void check_start(const muster::v1::JobSpec& spec, Findings& findings);

}  // namespace jobfile
