#include "controller/admission/ledger.h"

#include <algorithm>
#include <utility>

#include "controller/common/changes.h"
#include "spec/jobfile/job_keys.h"

namespace admission {
namespace {

Limit sweep_limit(const std::string& sweep, std::uint32_t most) {
  return {sweep_key(sweep), most,
          "waits for its turn: at most " + std::to_string(most) + " of sweep " + sweep + " have an attempt at once",
          common::kStartsByItself};
}

Limit partition_limit(const muster::v1::PartitionPolicy& policy, const std::string& user) {
  const auto most = policy.max_running_jobs_per_user();
  return {partition_key(policy.name(), user), most,
          "partition \"" + policy.name() + "\" allows " + user + " " + std::to_string(most) +
              (most == 1 ? " job" : " jobs") + " at once (max_running_jobs_per_user), and so many are with Slurm",
          "It starts by itself when one of them ends; muster list --state running --state queued shows them"};
}

}  // namespace

std::string sweep_key(const std::string& sweep) {
  return "sweep:" + sweep;
}

std::string partition_key(const std::string& partition, const std::string& user) {
  return "partition:" + partition + "/" + user;
}

std::vector<Limit> limits_of(const core::Job& job, const muster::v1::JobSpec& spec,
                             const partitions::PartitionPolicies* policies) {
  std::vector<Limit> limits;
  const auto* policy = policies == nullptr ? nullptr : policies->find(jobfile::slurm_text(spec, "partition"));
  const bool limits_running = policy != nullptr && policy->has_max_running_jobs_per_user();
  auto parallel = job.sweep.parallel;
  if (parallel == 0 && limits_running)
    parallel = static_cast<std::uint32_t>(jobfile::slurm_whole(spec, "array_parallelism"));
  if (!job.sweep.sweep.empty() && parallel > 0) limits.push_back(sweep_limit(job.sweep.sweep, parallel));
  if (limits_running) limits.push_back(partition_limit(*policy, job.user));
  return limits;
}

namespace {

const core::Attempt* living(const core::Job& job) {
  const auto* attempt = job.current();
  return attempt == nullptr || attempt->state == core::AttemptState::kEnded ? nullptr : attempt;
}

}  // namespace

// `by` is 1, or its wrapped negative.
void Ledger::add(const std::string& key, const Entry& entry, std::uint32_t by) {
  auto& count = counts_[key];
  if (entry.has_slots()) count.taken += by;
  if (entry.waits()) count.waiting += by;
  if (!entry.ended) count.open += by;
  if (count == Count{}) counts_.erase(key);
}

void Ledger::add(const Entry& entry, std::uint32_t by) {
  if (!entry.sweep.empty()) add(sweep_key(entry.sweep), entry, by);
  if (!entry.partition.value_or("").empty()) add(partition_key(*entry.partition, entry.user), entry, by);
}

template <typename Change>
void Ledger::change(core::JobId job, Change make) {
  const auto found = jobs_.find(job);
  if (found == jobs_.end()) return;
  auto& entry = found->second;
  add(entry, ~0U);
  make(entry);
  if (entry.ended && !entry.launching) {
    jobs_.erase(found);
    unplaced_.erase(job);
  } else {
    add(entry, 1);
  }
}

void Ledger::follow(const core::Job& job) {
  const bool ended = core::is_ended(job.state);
  const auto [place, fresh] =
      jobs_.try_emplace(job.id, Entry{.sweep = job.sweep.sweep, .user = job.user, .partition = std::nullopt});
  if (fresh) {
    add(place->second, 1);
    unplaced_.insert(job.id);
  }
  const auto* attempt = living(job);
  change(job.id, [&](Entry& entry) {
    const auto number = attempt == nullptr ? 0 : attempt->number;
    const bool queued = attempt != nullptr && attempt->state == core::AttemptState::kQueued;
    entry.parked = entry.parked && queued && entry.attempt == number;
    entry.attempt = number;
    entry.queued = queued;
    entry.ended = ended;
  });
}

void Ledger::set_partition(core::JobId job, const std::string& partition) {
  unplaced_.erase(job);
  change(job, [&](Entry& entry) { entry.partition = partition; });
}

void Ledger::enter(const core::Job& job) {
  if (!jobs_.contains(job.id)) follow(job);
  const bool is_new = !jobs_.contains(job.id);  // it has ended, and its launch may have arrived
  if (is_new) {
    Entry entry{.sweep = job.sweep.sweep, .user = job.user, .partition = std::nullopt, .ended = true};
    add(jobs_.emplace(job.id, std::move(entry)).first->second, 1);
    unplaced_.insert(job.id);
  }
  change(job.id, [&](Entry& entry) {
    entry.launching = entry.launching || entry.attempt == 0;
    entry.parked = false;
  });
}

void Ledger::settle(core::JobId job) {
  change(job, [](Entry& entry) { entry.launching = false; });
}

void Ledger::park(const core::Job& job) {
  const auto* attempt = living(job);
  change(job.id, [&](Entry& entry) {
    if (attempt != nullptr && entry.queued && entry.attempt == attempt->number) entry.parked = true;
  });
}

bool Ledger::has_slots(core::JobId job) const {
  const auto found = jobs_.find(job);
  return found != jobs_.end() && found->second.has_slots();
}

const Limit* Ledger::full(std::span<const Limit> limits) const {
  const auto found =
      std::ranges::find_if(limits, [&](const Limit& limit) { return count(limit.key).taken >= limit.most; });
  return found == limits.end() ? nullptr : &*found;
}

Count Ledger::count(const std::string& key) const {
  const auto found = counts_.find(key);
  return found == counts_.end() ? Count{} : found->second;
}

std::uint32_t Ledger::open_below(const std::string& prefix) const {
  std::uint32_t open = 0;
  for (auto at = counts_.lower_bound(prefix); at != counts_.end() && at->first.starts_with(prefix); ++at) {
    open += at->second.open;
  }
  return open;
}

}  // namespace admission
