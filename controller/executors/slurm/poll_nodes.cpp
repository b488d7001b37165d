#include <spdlog/spdlog.h>

#include <algorithm>

#include "controller/executors/slurm/attempt_files.h"
#include "controller/executors/slurm/poller.h"
#include "slurm/batch_script.h"
#include "slurm/pending_reason.h"

namespace executors::on_slurm {
namespace {

/// A node that takes a connection does so at once. The limit is for all nodes together.
constexpr core::Millis kNodesAnswerWithin{700};
/// From a launch that failed to giving up on the name of the node.
constexpr core::Millis kDrainPatience{3000};

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

// Before anything that may take long.
void Poller::ask_nodes() {
  std::vector<std::string> wanted;
  {
    std::lock_guard lock(mutex_);
    node_check_.forget_old(clock_.monotonic());
    wanted = node_check_.wanted();
  }
  if (wanted.empty()) return;
  const auto nodes = scheduler_.nodes();
  if (!nodes) return;
  std::vector<::slurm::Node> asked;
  for (const auto& node : *nodes) {
    if (std::ranges::find(wanted, node.name) != wanted.end()) asked.push_back(node);
  }
  const auto config = scheduler_.config();
  const auto answers = ask(asked, config ? config->field("SlurmdPort") : "", kNodesAnswerWithin);
  std::lock_guard lock(mutex_);
  for (const auto& [name, there] : answers) node_check_.answered(name, there, clock_.monotonic());
}

// Tells which nodes failed the health check of an attempt, before the end of the attempt, which would otherwise be all
// that is told.
void Poller::tell_unfit_nodes(const Listing& listing) {
  const auto wanted = table_.pick([&](const core::AttemptKey& key, Tracked& tracked) {
    const auto* job = listing.row_of(tracked.job);
    const bool unfit = job != nullptr && job->exit && job->exit->code == ::slurm::kUnfitExit;
    return unfit && !std::exchange(tracked.checked, true) ? std::optional(std::pair(key, tracked.log)) : std::nullopt;
  });
  for (const auto& [key, log] : wanted) {
    auto facts = unfit_nodes_of(log, key.number);
    table_.with(key, [&](Tracked& tracked) { tracked.told = std::move(facts); });
  }
}

// Tells which nodes could not start an attempt. Slurm drains them a moment later, and the end waits for that.
void Poller::tell_nodes_without_launch(const Listing& listing) {
  struct Wanted {
    core::AttemptKey key;
    core::Time submitted;  // by Slurm's clock
    std::vector<std::string> left_out;
  };
  const auto now = clock_.monotonic();
  const auto slurm_clock = this->slurm_clock();
  const auto wanted = table_.pick([&](const core::AttemptKey& key, Tracked& tracked) -> std::optional<Wanted> {
    const auto* job = listing.row_of(tracked.job);
    if (job == nullptr || job->restarts == 0 || tracked.checked) return std::nullopt;
    if (::slurm::understand_reason(job->reason) != ::slurm::Reason::kLaunchFailure) return std::nullopt;
    if (!tracked.unlaunched_at) tracked.unlaunched_at = now;
    tracked.checked = now - *tracked.unlaunched_at >= kDrainPatience;
    // Slurm's times are whole seconds.
    return Wanted{key, slurm_clock.theirs(tracked.submitted_after) - std::chrono::seconds(1), tracked.left_out};
  });
  if (wanted.empty()) return;
  const auto nodes = scheduler_.nodes();
  if (!nodes) return spdlog::warn("which nodes could not start a job cannot be told: {}", nodes.why());
  for (const auto& [key, submitted, left_out] : wanted) {
    auto facts = nodes_without_launch(*nodes, submitted, left_out, key.number);
    if (facts.empty()) continue;
    table_.with(key, [&](Tracked& tracked) {
      tracked.checked = true;
      tracked.told = std::move(facts);
    });
  }
}

// The nodes that Slurm calls down. Slurm is asked only when it has requeued something without saying why.
DownNodes Poller::down_nodes(const Listing& listing) {
  const bool wanted = table_.locked([&](const AttemptTable::State& state) {
    return std::ranges::any_of(state.attempts, [&](const auto& entry) {
      const auto* job = listing.row_of(entry.second.job);
      return job != nullptr && job->restarts > 0 && !job->preempted && !entry.second.attempt.ended();
    });
  });
  DownNodes down;
  if (!wanted) return down;
  if (const auto nodes = scheduler_.nodes()) {
    for (const auto& node : *nodes) {
      if (node.is_down()) down.emplace(node.name, node.why());
    }
  }
  return down;
}

// Gives waiting jobs the nodes back that were lost when the jobs were handed over, and are not lost any more. Makes one
// call for all elements of an array. Returns why Slurm can't be reached; empty: it can.
std::string Poller::end_exclusions() {
  const auto waiting = table_.locked(waiting_jobs);
  if (waiting.empty() || !lost_nodes_) return {};
  const auto lost = lost_nodes_();
  for (const auto& [id, job] : waiting) {
    const auto still = kept_off(job.keys.front().job, lost);
    auto left_out = job.left_out;
    std::erase_if(left_out, [&](const auto& node) { return std::ranges::find(still, node) == still.end(); });
    if (left_out == job.left_out) continue;
    auto nodes = left_out;
    if (!job.exclude.empty()) nodes.push_back(job.exclude);
    const auto answer = scheduler_.exclude({id, {}}, nodes);
    if (answer.unreachable()) return answer.why();
    // Slurm refuses the elements of an array that have started meanwhile.
    if (answer.refused()) spdlog::debug("Slurm job {}: {}", id, answer.why());
    for (const auto& key : job.keys) table_.with(key, [&](Tracked& tracked) { tracked.left_out = left_out; });
  }
  return {};
}

}  // namespace executors::on_slurm
