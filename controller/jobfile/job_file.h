#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "jobfile/job_source.h"
#include "jobfile/spec.h"
#include "jobfile/sweep_axis.h"

namespace jobfile {

/// A value from the command line that replaces the job file's.
struct Override {
  std::string option;                    // as typed, for errors: "--set train.steps=10"
  std::string key;                       // "train.steps"
  std::optional<std::string> value;      // a TOML value; anything else is a text. nullopt: "=" was missing
  std::vector<std::string> append = {};  // of "command": words to add to it, in the place of a value
  std::string problem = {};              // why the key can't be told
};
/// "train.steps=10" of --set. Of a key its last part is enough where no other ends the same.
Override override_of_set(const std::string& assignment);

struct JobFile {
  /// Defaults filled in but for [requeue], paths absolute; only to be used without problems.
  muster::v1::JobSpec spec;
  std::vector<std::string> problems;  // lines for people, each with its place: `job.toml:4:14: key "value": want ...`
  std::vector<SweepAxis> axes;        // of the [sweep] table, in the order of the file
  std::uint32_t parallel = 0;         // of the [sweep] table; 0: no limit
};

/// Checks a job file with these overrides: strict TOML whose keys are those of job_keys(). All problems are found at
/// once (the first kMostProblems are told), apart from those that a worse one causes.
JobFile compose(const JobSource& source, const std::vector<Override>& overrides, FileChecks checks);

/// Reads and checks a job file, and those it extends. `name` stands for the file in problems; relative paths count from
/// `folder`, which is absolute.
JobFile parse_job_file(std::string_view text, const std::string& name, const std::filesystem::path& folder,
                       const std::vector<Override>& overrides, FileChecks checks);

/// The same from a file. A file that is missing, unreadable, a folder or too large is a problem too.
JobFile read_job_file(const std::filesystem::path& file, const std::vector<Override>& overrides, FileChecks checks);

}  // namespace jobfile
