#include "jobfile/sweep.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <map>
#include <set>

#include "jobfile/job_file.h"
#include "jobfile/job_keys.h"
#include "jobfile/toml_value.h"

namespace jobfile {
namespace {

constexpr std::size_t kLongestFolder = 200;

/// The job file's axes and those of the command line. An axis of the command line replaces one with the same key.
std::vector<SweepAxis> joined(std::vector<SweepAxis> own, std::vector<SweepAxis> more) {
  for (auto& axis : more) {
    const auto same = std::ranges::find_if(own, [&](const SweepAxis& a) { return a.key == axis.key; });
    if (same == own.end()) {
      own.push_back(std::move(axis));
    } else {
      *same = std::move(axis);
    }
  }
  return own;
}

std::string problem_of(const std::vector<SweepAxis>& axes, const std::vector<Override>& overrides) {
  std::size_t jobs = 1;
  for (const auto& axis : axes) {
    for (const auto& override : overrides) {
      if (override.key == axis.key) return override.option + ": the sweep varies it; remove one of them";
    }
    jobs *= axis.values.size();
    if (jobs > kMostSweepJobs) {
      return "the sweep is more than " + std::to_string(kMostSweepJobs) +
             " jobs; give it fewer values, or submit it in "
             "parts";
    }
  }
  return {};
}

/// One combination: the index of a value for each axis.
class Combination {
 public:
  explicit Combination(const std::vector<SweepAxis>& axes) : axes_(axes), at_(axes.size(), 0) {}

  std::vector<Override> overrides() const {
    std::vector<Override> all;
    for (std::size_t i = 0; i < axes_.size(); ++i) {
      all.push_back({axes_[i].option + axes_[i].key + "=" + shown(value(i)), axes_[i].key, value(i)});
    }
    return all;
  }
  void fill(muster::v1::SweepElement& element) const {
    for (std::size_t i = 0; i < axes_.size(); ++i) (*element.mutable_settings())[axes_[i].key] = value(i);
  }
  /// Goes to the next combination. Returns false after the last one.
  bool next() {
    for (std::size_t i = axes_.size(); i-- > 0;) {
      if (++at_[i] < axes_[i].values.size()) return true;
      at_[i] = 0;
    }
    return false;
  }
  /// The name of a folder: "train.learning_rate=1e-4,train.seed=0", without characters that a file name cannot have.
  std::string folder() const {
    std::string name;
    for (std::size_t i = 0; i < axes_.size(); ++i) name += (i > 0 ? "," : "") + axes_[i].key + "=" + value(i);
    for (char& c : name) {
      const bool fine = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9');
      if (!fine && std::string_view("._=,+-").find(c) == std::string_view::npos) c = '_';
    }
    return name;
  }

 private:
  const std::string& value(std::size_t axis) const { return axes_[axis].values[at_[axis]]; }

  const std::vector<SweepAxis>& axes_;
  std::vector<std::size_t> at_;
};

/// Completes the jobs one after the other, and checks that no two share a checkpoint folder.
class Finisher {
 public:
  explicit Finisher(const std::vector<SweepAxis>& axes)
      : folder_varies_(std::ranges::any_of(axes, [](const auto& axis) { return axis.key == "checkpoint.folder"; })) {}

  /// Returns the problem; empty: there is none.
  std::string finish(const Combination& combination, std::uint32_t index, muster::v1::JobSpec& spec) {
    char suffix[16];
    std::snprintf(suffix, sizeof suffix, "-%04u", static_cast<unsigned>(index));
    spec.set_name(spec.name().substr(0, schema::kLongestName - std::string_view(suffix).size()) + suffix);
    combination.fill(*spec.mutable_sweep());
    spec.mutable_sweep()->set_index(index);
    auto* folder = spec.mutable_checkpoint()->mutable_folder();
    if (folder->empty()) return {};
    if (!folder_varies_) {
      const auto name = combination.folder();
      if (name.size() > kLongestFolder) {
        return "checkpoint.folder: the settings are too long for the name of each job's folder; leave it out, and each "
               "job gets its own";
      }
      *folder = (std::filesystem::path(*folder) / name).native();
    }
    const auto [known, fresh] = folders_.emplace(*folder, spec.name());
    if (fresh) return {};
    return "checkpoint.folder \"" + shown(*folder) + "\": " + known->second + " and " + spec.name() +
           " would both use it; leave it out, and each job gets its own";
  }

 private:
  bool folder_varies_;
  std::map<std::string, std::string> folders_;
};

}  // namespace

Sweep compose_sweep(const JobSource& source, const std::vector<Override>& overrides, std::vector<SweepAxis> axes,
                    FileChecks checks) {
  Sweep sweep;
  auto base = compose(source, overrides, FileChecks::kSkip);
  sweep.parallel = base.parallel;
  axes = joined(std::move(base.axes), std::move(axes));
  if (const auto problem = problem_of(axes, overrides); !problem.empty()) sweep.problems.push_back(problem);
  if (axes.empty() || !sweep.problems.empty()) {
    sweep.problems.insert(sweep.problems.end(), base.problems.begin(), base.problems.end());
    if (sweep.problems.empty()) sweep.problems.push_back(source.name() + ": the sweep varies no key");
    return sweep;
  }
  Finisher finisher(axes);
  std::set<std::string> told;
  const auto tell = [&](const std::string& problem) {
    if (told.insert(problem).second) sweep.problems.push_back(problem);
  };
  Combination combination(axes);
  for (std::uint32_t index = 0; sweep.problems.size() < kMostProblems; ++index) {
    auto all = overrides;
    for (auto& override : combination.overrides()) all.push_back(std::move(override));
    auto job = compose(source, all, checks);
    for (const auto& problem : job.problems) tell(problem);
    if (const auto problem = finisher.finish(combination, index, job.spec); !problem.empty()) tell(problem);
    sweep.specs.push_back(std::move(job.spec));
    if (!combination.next()) break;
  }
  return sweep;
}

}  // namespace jobfile
