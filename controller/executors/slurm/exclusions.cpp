#include "executors/slurm/exclusions.h"

#include <spdlog/spdlog.h>

#include <algorithm>

namespace runtime::on_slurm {
namespace {

/// The attempts of one Slurm job, which is one attempt or an array.
struct Waiting {
  std::string exclude;
  std::vector<std::string> left_out;
  std::vector<core::AttemptKey> keys;
};

std::map<std::uint64_t, Waiting> waiting_jobs(const AttemptTable::State& state) {
  std::map<std::uint64_t, Waiting> waiting;
  for (const auto& [key, tracked] : state.attempts) {
    if (tracked.left_out.empty() || !tracked.listed || tracked.listed->restarts > 0) continue;
    if (::slurm::classify(tracked.listed->state.state) != ::slurm::JobPhase::kQueued) continue;
    auto& job = waiting.try_emplace(tracked.job.id.job, Waiting{tracked.exclude, tracked.left_out, {}}).first->second;
    job.keys.push_back(key);
  }
  return waiting;
}

}  // namespace

std::string end_exclusions(::slurm::Scheduler& scheduler, AttemptTable& table,
                           const std::function<LostNodes()>& lost_nodes) {
  const auto waiting = table.locked(waiting_jobs);
  if (waiting.empty() || !lost_nodes) return {};
  const auto lost = lost_nodes();
  for (const auto& [id, job] : waiting) {
    const auto still = kept_off(job.keys.front().job, lost);
    auto left_out = job.left_out;
    std::erase_if(left_out, [&](const auto& node) { return std::ranges::find(still, node) == still.end(); });
    if (left_out == job.left_out) continue;
    auto nodes = left_out;
    if (!job.exclude.empty()) nodes.push_back(job.exclude);
    const auto answer = scheduler.exclude({id, {}}, nodes);
    if (answer.unreachable()) return answer.why();
    // Slurm refuses the elements of an array that have started meanwhile.
    if (answer.refused()) spdlog::debug("Slurm job {}: {}", id, answer.why());
    for (const auto& key : job.keys) table.with(key, [&](Tracked& tracked) { tracked.left_out = left_out; });
  }
  return {};
}

}  // namespace runtime::on_slurm
