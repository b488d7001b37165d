#include "controller/jobs/job_remover.h"

#include <spdlog/spdlog.h>

#include <set>

namespace jobs {
namespace {

namespace fs = std::filesystem;

constexpr core::Millis kTryAgain{5000};

}  // namespace

JobRemover::JobRemover(Parts parts, bool threads)
    : parts_(std::move(parts)), loop_("remover", "what removed jobs left behind is deleted later", threads, [this] {
        return poll() ? std::nullopt : std::optional(kTryAgain);
      }) {}

bool JobRemover::poll() {
  bool all = true;
  try {
    std::set<core::JobId> busy;
    std::vector<store::PendingAction> due;
    for (auto& action : parts_.store.pending_actions()) {
      if (std::holds_alternative<core::RemoveFiles>(action.action)) {
        due.push_back(std::move(action));
      } else {
        busy.insert(action.job);
      }
    }
    for (const auto& action : due) {
      if (loop_.is_closed()) return false;
      if (busy.contains(action.job) || !remove(action.job)) {
        all = false;
        continue;
      }
      parts_.store.complete_action(action.id);
      told_.erase(action.job);
    }
  } catch (const std::exception& e) {
    spdlog::warn("what removed jobs left behind is deleted later: {}", e.what());
    return false;
  }
  return all;
}

bool JobRemover::remove(core::JobId id) {
  try {
    const auto job = parts_.event_log.job(id);
    if (job == nullptr || !job->removed_at) return true;
    while (parts_.store.remove_metrics(id, kMetricsAtOnce) == kMetricsAtOnce) {
      if (loop_.is_closed()) return false;
    }
    remove_scheduler_logs(*job);
    fs::remove_all(parts_.data.job(id));
    if (!job->sweep.sweep.empty() && parts_.store.count({}, job->sweep.sweep) == 0) remove_arrays(job->sweep.sweep);
    return true;
  } catch (const std::exception& e) {
    auto& told = told_[id];
    if (told != e.what()) spdlog::warn("job {} is removed, but not all of its files yet: {}", id, e.what());
    told = e.what();
    return false;
  }
}

// Those of array elements lie in the folder of the array, which other jobs share.
void JobRemover::remove_scheduler_logs(const core::Job& job) {
  if (!parts_.scheduler_log) return;
  for (const auto& attempt : job.attempts) {
    const auto log = parts_.scheduler_log(parts_.data.attempt({job.id, attempt.number}));
    if (!log.empty()) fs::remove(log);
  }
}

// The last job of a sweep is gone: so is what its arrays shared.
void JobRemover::remove_arrays(const std::string& sweep) {
  const auto folder = parts_.data.root() / "slurm";
  if (!fs::is_directory(folder)) return;
  std::vector<fs::path> gone;
  for (const auto& entry : fs::directory_iterator(folder)) {
    const auto first = common::DataFolder::first_job_of_set(entry.path().filename().native());
    const auto job = first ? parts_.event_log.job(*first) : nullptr;
    if (job != nullptr && job->sweep.sweep == sweep) gone.push_back(entry.path());
  }
  gone.push_back(folder / ("sweep-" + sweep));
  for (const auto& path : gone) fs::remove_all(path);
}

}  // namespace jobs
