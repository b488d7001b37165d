#pragma once

#include <toml++/toml.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace jobfile {

/// One key that a sweep varies.
struct SweepAxis {
  std::string key;                  // "train.seed"
  std::string option;               // what stands before `key=value` in problems: "--sweep ", "job.toml:9:1: sweep."
  std::vector<std::string> values;  // as --set takes them, each once
};

/// An axis, or why it is none.
struct ReadAxis {
  SweepAxis axis;
  std::string problem;  // a line for people, with its place
};

inline constexpr std::size_t kMostSweepJobs = 10'000;

/// "train.learning_rate=1e-4,3e-4" or "seed=0..3" of --sweep. 0..3 is 0, 1, 2, 3. Of a key its last part is enough
/// where no other ends the same.
ReadAxis axis_of_option(const std::string& assignment);

/// The key meant by `word`; of several, none: then `problem` lists them.
struct SweepKey {
  std::string key;
  std::string problem;
};
SweepKey resolve_sweep_key(const std::string& word, const std::vector<std::string>& keys);
/// Every key that may vary, but for those below open tables ([env], [slurm.options]).
std::vector<std::string> sweepable_keys();

/// What stands at a place of a job file; empty where that can't be told.
using WrittenAt = std::function<std::string(const toml::source_region&)>;
/// A text, a number as it was written (1e-3 rather than 0.001), or true or false; anything else is nullopt.
std::optional<std::string> scalar_text(const toml::node& node, const WrittenAt& written);

struct LocatedAxis {
  SweepAxis axis;
  const toml::source_region* source = nullptr;
};
struct LocatedProblem {
  std::string key, value, message;
  const toml::source_region* source = nullptr;
};
/// The [sweep] table of a job file. Places live as long as `node`.
struct SweepTable {
  std::vector<LocatedAxis> axes;
  std::uint32_t parallel = 0;
  std::vector<LocatedProblem> problems;
};
SweepTable read_sweep_table(const toml::node& node, const WrittenAt& written);

}  // namespace jobfile
