#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/jobfile/job_source.h"
#include "spec/jobfile/spec.h"
#include "spec/jobfile/sweep.h"

namespace jobfile {

/// A value from the command line that replaces the job file's.
struct Override {
  std::string option;                    // as typed, for errors: "--set train.steps=10"
  std::string key;                       // "train.steps"
  std::optional<std::string> value;      // a TOML value; anything else is a text; nullopt: "=" was missing
  std::vector<std::string> append = {};  // words to add to "command"; then there is no value
  std::string problem = {};              // why the key is not known; empty: it is
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
