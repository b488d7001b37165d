#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/clock.h"
#include "executors/slurm/attempt_table.h"
#include "executors/slurm/launcher.h"

namespace runtime::on_slurm {

/// Cancels the jobs of this controller in Slurm whose attempts are over: a controller that died left them, or Slurm
/// runs them again. Belongs to one thread.
class Leftovers {
 public:
  Leftovers(::slurm::Scheduler& scheduler, const Clock& clock, AttemptTable& table, const Launcher& launcher)
      : scheduler_(scheduler), clock_(clock), table_(table), launcher_(launcher) {}

  void cancel(const std::vector<::slurm::ListedJob>& jobs, const std::function<bool(const core::AttemptKey&)>& is_over);

 private:
  using Job = std::pair<const ::slurm::ListedJob*, core::AttemptKey>;
  std::vector<Job> unfollowed(const std::vector<::slurm::ListedJob>& jobs);
  std::optional<core::AttemptKey> key_of(const ::slurm::ListedJob& job);

  ::slurm::Scheduler& scheduler_;
  const Clock& clock_;
  AttemptTable& table_;
  const Launcher& launcher_;
  std::map<::slurm::JobId, core::Millis> since_;
  /// The attempts of each array by its comment, read once while some of its elements wait or run.
  std::map<std::string, std::vector<core::AttemptKey>> sets_;
};

}  // namespace runtime::on_slurm
