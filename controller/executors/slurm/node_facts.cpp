#include "executors/slurm/node_facts.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "executors/slurm/health_check.h"
#include "slurm/pending_reason.h"

namespace runtime::on_slurm {
namespace {

/// From a launch that failed to giving up on the name of the node.
constexpr core::Millis kDrainPatience{3000};

constexpr std::size_t kMostNodes = 256;

}  // namespace

void tell_unfit_nodes(AttemptTable& table, const std::vector<::slurm::ListedJob>& jobs) {
  std::vector<std::pair<core::AttemptKey, std::filesystem::path>> wanted;
  table.locked([&](AttemptTable::State& state) {
    for (const auto& job : jobs) {
      if (!job.exit || job.exit->code != kUnfitExit) continue;
      for (auto& [key, tracked] : state.attempts) {
        if (!tracked.job.is(job) || std::exchange(tracked.checked, true)) continue;
        wanted.emplace_back(key, tracked.folder);
      }
    }
  });
  for (const auto& [key, folder] : wanted) {
    auto facts = unfit_nodes_of(folder, key.number);
    table.with(key, [&](Tracked& tracked) { tracked.told = std::move(facts); });
  }
}

std::vector<core::EventBody> nodes_without_launch(const std::vector<::slurm::Node>& nodes, core::Time since,
                                                  const std::vector<std::string>& left_out,
                                                  core::AttemptNumber attempt) {
  std::vector<core::EventBody> facts;
  for (const auto& node : nodes) {
    const auto at = node.why_since();
    if (!node.failed_a_launch() || !at || *at < since || facts.size() == kMostNodes) continue;
    if (std::ranges::find(left_out, node.name) != left_out.end()) continue;
    core::NodeLost lost{attempt, node.name, core::Millis(0)};
    lost.why = "Slurm could not start the job on it (" + node.why() + ")";
    facts.emplace_back(std::move(lost));
  }
  return facts;
}

void tell_nodes_without_launch(::slurm::Scheduler& scheduler, AttemptTable& table,
                               const std::vector<::slurm::ListedJob>& jobs, const SlurmClock& slurm_clock,
                               core::Millis now) {
  struct Wanted {
    core::AttemptKey key;
    core::Time submitted;  // by Slurm's clock
    std::vector<std::string> left_out;
  };
  std::vector<Wanted> wanted;
  table.locked([&](AttemptTable::State& state) {
    for (const auto& job : jobs) {
      if (job.restarts == 0 || ::slurm::understand_reason(job.reason) != ::slurm::Reason::kLaunchFailure) continue;
      for (auto& [key, tracked] : state.attempts) {
        if (!tracked.job.is(job) || tracked.checked) continue;
        if (!tracked.unlaunched_at) tracked.unlaunched_at = now;
        tracked.checked = now - *tracked.unlaunched_at >= kDrainPatience;
        // Slurm's times are whole seconds.
        const auto submitted = slurm_clock.theirs(tracked.submitted_after) - std::chrono::seconds(1);
        wanted.push_back({key, submitted, tracked.left_out});
      }
    }
  });
  if (wanted.empty()) return;
  const auto nodes = scheduler.nodes();
  if (!nodes) return spdlog::warn("which nodes could not start a job cannot be told: {}", nodes.why());
  for (const auto& [key, submitted, left_out] : wanted) {
    auto facts = nodes_without_launch(*nodes, submitted, left_out, key.number);
    if (facts.empty()) continue;
    table.with(key, [&](Tracked& tracked) {
      tracked.checked = true;
      tracked.told = std::move(facts);
    });
  }
}

DownNodes down_nodes(::slurm::Scheduler& scheduler, AttemptTable& table, const std::vector<::slurm::ListedJob>& jobs) {
  const bool wanted = table.locked([&](const AttemptTable::State& state) {
    return std::ranges::any_of(jobs, [&](const auto& job) {
      return job.restarts > 0 && !job.preempted && std::ranges::any_of(state.attempts, [&](const auto& entry) {
               return entry.second.job.is(job) && !entry.second.attempt.ended();
             });
    });
  });
  DownNodes down;
  if (!wanted) return down;
  if (const auto nodes = scheduler.nodes()) {
    for (const auto& node : *nodes) {
      if (node.is_down()) down.emplace(node.name, node.why());
    }
  }
  return down;
}

}  // namespace runtime::on_slurm
