#pragma once

#include <toml++/toml.h>

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/jobfile/spec.h"
#include "spec/jobfile/sweep.h"
#include "spec/variables.h"

namespace jobfile {

inline constexpr std::size_t kMostJobFileBytes = 1 << 20;
inline constexpr std::size_t kDeepestExtends = 8;

/// A job file and the files that it extends. Each file is read once.
class JobSource {
 public:
  /// Problems call the file `name`. Relative paths start at `folder`, which is absolute.
  static JobSource of_text(std::string_view text, const std::string& name, const std::filesystem::path& folder);
  /// Takes a table, whose values have no line and no column, in the same way.
  static JobSource of_table(toml::table table, const std::string& name, const std::filesystem::path& folder);
  /// A file that is missing, unreadable, a folder or too large is a problem.
  static JobSource of_file(const std::filesystem::path& file);

  /// Why the files cannot be read. Call merged() only if there are none.
  const std::vector<Finding>& findings() const { return findings_; }
  /// All files as one table. A file's values replace the values of the file that it extends; tables are merged. Each
  /// value knows its file, line and column.
  toml::table merged() const;

  /// The variables that a job takes of its submitter's environment. Empty before set_submitter().
  const spec::Environment& taken_from_submitter() const { return taken_; }
  void set_submitter(const spec::Environment& environment) { taken_ = spec::taken_from(environment); }
  /// One more of the submitter's variables.
  void take_also(const std::string& name, const std::string& value) { taken_[name] = value; }

  const std::string& name() const { return name_; }
  /// Where the job file begins; 0:0 for a table.
  toml::source_position start() const;
  const std::filesystem::path& folder() const { return folder_; }
  /// The folder of the file that the value came from.
  const std::filesystem::path& folder_of(const toml::source_region& source) const;
  /// The text there, if it is on one line; empty: not known.
  std::string text_of(const toml::source_region& source) const;
  /// 0: the job file; 1: the file that it extends; ...
  std::size_t depth_of(const toml::source_region& source) const;

 private:
  struct File {
    std::string text, name;
    std::filesystem::path folder, identity;
    std::optional<toml::table> table = {};  // in place of the text
  };
  JobSource() = default;
  /// Reads the files that this one extends.
  explicit JobSource(File file);
  /// Reads the file that the newest file extends. Returns false if there is none.
  bool add_base();
  /// The newest file's table; nullopt: it has a problem.
  std::optional<toml::table> newest_table();
  /// Returns false.
  bool refuse(const toml::source_region& place, const std::string& problem);
  const File* file_of(const toml::source_region& source) const;

  std::string name_;
  std::filesystem::path folder_;
  spec::Environment taken_;
  std::vector<File> files_;  // each extends the next
  std::vector<Finding> findings_;
};

/// "job.toml:3:7"; "job" for a place without a line.
std::string text_of_place(const std::string& name, const toml::source_position& at);

/// A value from the command line that replaces the job file's.
struct Override {
  std::string option;                    // as typed, for errors: "--set train.steps=10"
  std::string key;                       // "train.steps"
  std::optional<std::string> value;      // a TOML value; anything else is a text; nullopt: "=" was missing
  std::vector<std::string> append = {};  // words to add to "command"; then there is no value
  std::string problem = {};              // why the key is not known; empty: it is
  bool of_file = false;                  // a line of a file sets it, so a sweep may vary the key
};
/// Reads the argument of --set: "train.steps=10". The last part of a key is enough if no other key ends in it.
Override override_of_set(const std::string& assignment);
/// Reads a key and its value in the same way; `option` names the place in problems.
Override override_of(const std::string& option, const std::string& key, std::optional<std::string> value);

struct JobFile {
  /// The spec with defaults, except for [requeue], and with absolute paths. Do not use it if there are problems.
  muster::v1::JobSpec spec;
  std::vector<std::string> problems;   // lines for people with file, line and column: `job.toml:4:14: key "value": ...`
  std::vector<SweepAxis> axes;         // from the [sweep] table, in the order of the file
  std::uint32_t parallel = 0;          // from the [sweep] table; 0: no limit
  std::vector<Finding> findings = {};  // the same problems for programs
};

/// Reads and checks a job file with these overrides. The file is strict TOML with the keys of job_keys(). All problems
/// are found at once, and the first kMostProblems are returned. A problem that only follows from another one is left
/// out.
JobFile compose(const JobSource& source, const std::vector<Override>& overrides, FileChecks checks);

/// Writes a spec as a job file: TOML with the keys and units of job_keys(). compose() makes the same spec from it. Keys
/// with their default are left out, and so are parts of a spec that no key sets (a job's index in its sweep).
std::string job_file_text(const muster::v1::JobSpec& spec);

}  // namespace jobfile
