#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "spec/jobfile/spec.h"
#include "spec/limits.h"

namespace jobfile {

/// One key that a sweep varies.
struct SweepAxis {
  std::string key;                  // "train.seed"
  std::string option;               // the text before `key=value` in problems: "--sweep ", "job.toml:9:1: sweep."
  std::vector<std::string> values;  // in the form of --set, each once
};

/// An axis, or why it is not valid.
struct ReadAxis {
  SweepAxis axis;
  std::string problem;  // a line for people; empty: the axis is valid
};

inline constexpr std::size_t kMostSweepJobs = spec::kMostSweepJobs;

/// Reads the argument of --sweep: "train.learning_rate=1e-4,3e-4" or "seed=0..3". 0..3 means 0, 1, 2, 3. The last part
/// of a key is enough if no other key ends in it.
ReadAxis axis_of_option(const std::string& assignment);

/// The key that `word` means. If several keys end in the word, `problem` lists them.
struct SweepKey {
  std::string key;
  std::string problem;
};
SweepKey resolve_sweep_key(const std::string& word, const std::vector<std::string>& keys);
/// Every key that a sweep may vary, except keys of open tables ([env], [slurm.options]).
std::vector<std::string> sweepable_keys();

/// Returns the text of a region of a job file; empty: not known.
using WrittenAt = std::function<std::string(const toml::source_region&)>;
/// The text of a text, a number or a flag; nullopt for anything else. A number keeps its form: 1e-3 does not become
/// 0.001.
std::optional<std::string> scalar_text(const toml::node& node, const WrittenAt& written);

struct LocatedAxis {
  SweepAxis axis;
  const toml::source_region* source = nullptr;
};
struct LocatedProblem {
  std::string key, value, message;
  const toml::source_region* source = nullptr;
};
/// The [sweep] table of a job file. The sources live as long as `node`.
struct SweepTable {
  std::vector<LocatedAxis> axes;
  std::uint32_t parallel = 0;
  std::vector<LocatedProblem> problems;
};
SweepTable read_sweep_table(const toml::node& node, const WrittenAt& written);

class JobSource;
struct Override;

/// The jobs of a sweep, or its problems.
struct Sweep {
  std::vector<muster::v1::JobSpec> specs;  // each is complete and valid, and knows its settings
  std::vector<std::string> problems;       // lines for people; do not use the specs if there are any
  std::uint32_t parallel = 0;              // how many may run at once; 0: no limit
  std::vector<Finding> findings = {};      // the same problems for programs
};

/// Makes one job for each combination of the axes' values, at most kMostSweepJobs. The last axis varies fastest. The
/// axes of the job file's [sweep] come first; an axis of `axes` with the same key replaces one of them. Each job is
/// checked like a single job. Job 7 of "tune" is named "tune-0007".
///
/// If the spec names a checkpoint folder, each job gets a subfolder whose name holds its settings. So the same settings
/// find their checkpoints again. The folder may vary itself, but no two jobs may share one. The same holds for the
/// other paths that a training writes to: its export, its full state and its logs.
Sweep compose_sweep(const JobSource& source, const std::vector<Override>& overrides, std::vector<SweepAxis> axes,
                    FileChecks checks);

/// One job for each row of overrides, at most kMostSweepJobs. A row's keys are the settings of its job.
Sweep compose_rows(const JobSource& source, const std::vector<Override>& overrides,
                   const std::vector<std::vector<Override>>& rows, FileChecks checks);

}  // namespace jobfile
