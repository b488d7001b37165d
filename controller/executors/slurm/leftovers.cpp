#include <spdlog/spdlog.h>

#include <set>

#include "executors/slurm/poller.h"
#include "executors/slurm/task_files.h"

namespace executors::on_slurm {

// Cancels the jobs of this controller in Slurm whose attempts are over: a controller that died left them, or Slurm runs
// them again.
void Poller::cancel_leftovers(const std::vector<::slurm::ListedJob>& jobs) {
  std::vector<::slurm::JobId> leftovers;
  std::set<::slurm::JobId> still_there;
  const auto now = clock_.monotonic();
  for (const auto& [job, key] : unfollowed(jobs)) {
    if (!is_over_(key)) continue;
    still_there.insert(job->id);
    // A job that has its nodes may be at its teardown. Its ranks are told to leave by themselves.
    const auto since = left_since_.try_emplace(job->id, now).first->second;
    const bool active = ::slurm::classify(job->state.state) == ::slurm::JobPhase::kActive;
    const bool may_tear_down = active && job->restarts == 0;
    if (!may_tear_down || now - since >= SlurmAttempt::kTeardownMost) leftovers.push_back(job->id);
  }
  std::erase_if(left_since_, [&](const auto& entry) { return !still_there.contains(entry.first); });
  if (leftovers.empty()) return;
  spdlog::info("cancelling {} Slurm jobs whose attempts are over", leftovers.size());
  const auto answer = scheduler_.cancel(leftovers);
  if (!answer) spdlog::warn("they could not be cancelled: {}", answer.why());
}

// The jobs of this controller that wait or run, without those that are followed or are just being handed over.
std::vector<Poller::Job> Poller::unfollowed(const std::vector<::slurm::ListedJob>& jobs) {
  std::map<::slurm::JobId, core::AttemptKey> followed;
  const auto launching = table_.locked([&](const AttemptTable::State& state) {
    for (const auto& [key, tracked] : state.attempts) followed.emplace(tracked.job.id, key);
    return state.launching;
  });
  std::vector<Job> found;
  std::set<std::string> comments;
  for (const auto& job : jobs) {
    const auto phase = ::slurm::classify(job.state.state);
    if (phase != ::slurm::JobPhase::kQueued && phase != ::slurm::JobPhase::kActive) continue;
    comments.insert(job.comment);
    const auto key = key_of(job);
    if (!key || key->job == 0 || launching.contains(*key)) continue;
    const auto here = followed.find(job.id);
    if (here != followed.end() && here->second == *key) continue;
    found.emplace_back(&job, *key);
  }
  std::erase_if(sets_, [&](const auto& entry) { return !comments.contains(entry.first); });
  return found;
}

std::optional<core::AttemptKey> Poller::key_of(const ::slurm::ListedJob& job) {
  if (const auto key = launcher_.key_of(job.comment)) return key;
  const auto set = job.id.array_task ? launcher_.set_of(job.comment) : std::nullopt;
  if (!set) return std::nullopt;
  const auto [place, fresh] = sets_.try_emplace(job.comment);
  if (fresh) {
    try {
      place->second = read_set_file(*set / kSetFile);
    } catch (const std::exception& error) {
      spdlog::warn("which attempts {} are cannot be read: {}", job.comment, error.what());
    }
  }
  const auto& members = place->second;
  return *job.id.array_task < members.size() ? std::optional(members[*job.id.array_task]) : std::nullopt;
}

}  // namespace executors::on_slurm
