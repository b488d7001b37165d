#include "jobfile/idle_keys.h"

#include <array>
#include <span>

#include "jobfile/job_keys.h"
#include "jobfile/spec.h"

namespace jobfile {
namespace {

using muster::v1::JobSpec;

/// Keys that need a program that reports its steps.
constexpr std::array kForSteps = {"liveness.hung_after", "requeue.max_rank_hung"};
/// Keys that only muster-worker obeys.
constexpr std::array kForRecipes = {"liveness.silent_after_vouched", "liveness.join_within", "checkpoint.every_steps",
                                    "checkpoint.keep", "checkpoint.best"};

/// The spec as it would be without these keys.
JobSpec without_wishes(const JobSpec& spec) {
  JobSpec plain;
  *plain.mutable_command() = spec.command();
  plain.mutable_liveness()->set_silent_after_ms(spec.liveness().silent_after_ms());
  fill_defaults(plain);
  return plain;
}

/// "liveness.hung_after has", "checkpoint.keep, checkpoint.best have": those of the keys that the spec sets to another
/// value than `plain`; empty: there are none.
std::string asked_for(const JobSpec& spec, const JobSpec& plain, std::span<const char* const> keys) {
  std::string found;
  for (const char* key : keys) {
    const auto value = get(spec, *find_key(key));
    if (value && value != get(plain, *find_key(key))) found += (found.empty() ? "" : ", ") + std::string(key);
  }
  if (found.empty()) return found;
  return found + (found.find(',') == std::string::npos ? " has" : " have");
}

}  // namespace

std::vector<std::string> idle_keys(const JobSpec& spec, bool reports) {
  std::vector<std::string> notes;
  if (spec.slurm().array_parallelism() > 0 && !spec.has_sweep()) {
    notes.push_back("slurm.array_parallelism has no effect on a job that is not of a sweep");
  }
  if (!spec.has_command()) return notes;
  const auto plain = without_wishes(spec);
  if (const auto keys = asked_for(spec, plain, kForSteps); !keys.empty() && !reports) {
    notes.push_back(keys + " no effect while this program reports no steps");
  }
  if (const auto keys = asked_for(spec, plain, kForRecipes); !keys.empty()) {
    notes.push_back(keys + " no effect on a program of your own");
  }
  return notes;
}

}  // namespace jobfile
