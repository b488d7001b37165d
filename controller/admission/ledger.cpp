#include "controller/admission/ledger.h"

#include <algorithm>

#include "controller/core/core_text.h"
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

const core::Attempt* living(const core::Job& job) {
  const auto* attempt = job.current();
  return attempt == nullptr || attempt->state == core::AttemptState::kEnded ? nullptr : attempt;
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

// `by` is 1, or its wrapped negative.
void Ledger::add(const std::string& key, const Entry& entry, std::uint32_t by) {
  auto& count = counts_[key];
  if (entry.has_slots()) count.taken += by;
  if (entry.waits()) count.waiting += by;
  if (!entry.ended) count.open += by;
  if (count == Count{}) counts_.erase(key);
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

void Ledger::set_partition(core::JobId job, const std::string& partition) {
  unplaced_.erase(job);
  change(job, [&](Entry& entry) { entry.partition = partition; });
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

const Limit* Ledger::full(std::span<const Limit> limits) const {
  const auto found =
      std::ranges::find_if(limits, [&](const Limit& limit) { return count(limit.key).taken >= limit.most; });
  return found == limits.end() ? nullptr : &*found;
}

std::uint32_t Ledger::open_below(const std::string& prefix) const {
  std::uint32_t open = 0;
  for (auto at = counts_.lower_bound(prefix); at != counts_.end() && at->first.starts_with(prefix); ++at) {
    open += at->second.open;
  }
  return open;
}

namespace {

using executors::MachineNeed;
using executors::Overlap;
using executors::OwnGpu;

constexpr std::size_t kMostNamed = 3;

bool is_nothing(const std::optional<core::MachineShare>& share) {
  return !share || (share->gpus.empty() && share->cores == 0);
}

/// "job 1", "job 1 and job 4", "job 1, job 4, job 6 and 5 more".
std::string names_of(std::vector<core::JobId> jobs) {
  std::ranges::sort(jobs);
  jobs.erase(std::unique(jobs.begin(), jobs.end()), jobs.end());
  const auto more = jobs.size() > kMostNamed + 1 ? jobs.size() - kMostNamed : 0;
  const auto named = jobs.size() - more;
  std::string text;
  for (std::size_t i = 0; i < named; ++i) {
    const bool is_last = i + 1 == named && more == 0;
    text += (i == 0 ? "" : is_last ? " and " : ", ") + ("job " + std::to_string(jobs[i]));
  }
  return more == 0 ? text : text + " and " + std::to_string(more) + " more";
}

/// "waits for 2 GPUs: job 1 and job 4 have them", or what is free already.
std::string lacking(const std::string& what, std::size_t free, const std::vector<core::JobId>& takers) {
  const bool several = std::ranges::any_of(takers, [&](core::JobId job) { return job != takers.front(); });
  const std::string others = free == 0 ? "them" : "the others";
  const std::string besides =
      free == 0 ? "" : ", of which " + std::to_string(free) + (free == 1 ? " is" : " are") + " free";
  return "waits for " + what + besides + ": " + names_of(takers) + (several ? " have " : " has ") + others;
}

void add_gpu(core::MachineShare& share, const OwnGpu& gpu) {
  share.gpus.push_back(gpu.id);
  share.known.push_back(gpu.known);
}

/// Tells whether the share has this GPU.
Overlap overlap_of(const core::MachineShare& share, const OwnGpu& gpu) {
  auto most = Overlap::kNone;
  for (std::size_t i = 0; i < share.gpus.size(); ++i) {
    const auto known = i < share.known.size() ? share.known[i] : core::GpuIdentity{};
    most = std::max(most, executors::overlap(share.gpus[i], known, gpu.id, gpu.known));
  }
  return most;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const auto& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

constexpr const char* kWhenTheyEnd = "It starts by itself when enough is free; muster nodes shows who has what.";

/// A job waits for `what`, which is free: job `before` has waited longer, for `count` of it.
common::Wait in_turn(const std::string& what, core::JobId before, std::uint32_t count) {
  const auto number = std::to_string(before);
  return {
      "waits for " + what + ": job " + number + " has waited longer, for " + std::to_string(count),
      "It starts by itself. GPUs and cores are given in turn, so small jobs keep no large one waiting. To let later "
      "jobs go first: muster hold " +
          number};
}

}  // namespace

// Thousands may wait while nothing changes, so what is free is counted once.
void MachineLedger::count_free() {
  free_gpus_.clear();
  takers_.clear();
  in_doubt_.clear();
  for (const auto& gpu : machine_.gpus) {
    const auto& taker = takers_.emplace_back(taker_of(gpu));
    if (taker.job == 0) free_gpus_.push_back(&gpu);
    if (!taker.may_have) continue;
    const auto& holding = holdings_.at(taker.job);
    in_doubt_[taker.job] = listed((holding.launch ? holding.launch : holding.attempt)->gpus);
  }
  std::uint32_t cores = 0;
  for (const auto& [job, holding] : holdings_) {
    const auto of = [](const std::optional<core::MachineShare>& share) { return share ? share->cores : 0; };
    cores += std::max(of(holding.launch), of(holding.attempt));
  }
  free_cores_ = machine_.cores - std::min(machine_.cores, cores);
}

void MachineLedger::changed(core::JobId job) {
  const auto found = holdings_.find(job);
  if (found != holdings_.end() && !found->second.launch && !found->second.attempt) holdings_.erase(found);
  count_free();
}

void MachineLedger::follow(const core::Job& job) {
  const auto* attempt = job.current();
  const bool lives = attempt != nullptr && attempt->state != core::AttemptState::kEnded;
  const auto found = holdings_.find(job.id);
  if (lives && !is_nothing(attempt->share)) {
    const bool is_known = found != holdings_.end() && found->second.attempt == attempt->share;
    auto& holding = holdings_[job.id];
    holding.attempt = attempt->share;
    holding.number = attempt->number;
    holding.assumed = false;
    if (!is_known) changed(job.id);
  } else if (found != holdings_.end() && found->second.attempt) {
    const bool keeps = lives && found->second.assumed && found->second.number == attempt->number;
    if (!keeps) found->second.attempt.reset();
    if (!keeps) changed(job.id);
  }
  if (lives || core::is_ended(job.state) || !job.may_start()) step_back(job.id);
}

void MachineLedger::enter(const core::Job& job, core::MachineShare share) {
  step_back(job.id);
  std::optional<core::MachineShare> given(std::move(share));
  if (is_nothing(given)) return;
  auto& holding = holdings_[job.id];
  holding.launch = std::move(given);
  if (!holding.attempt) holding.number = static_cast<core::AttemptNumber>(job.attempts.size() + 1);
  changed(job.id);
}

void MachineLedger::keep_first(const core::Job& job, const MachineNeed& need) {
  core::MachineShare share{.gpus = {}, .cores = need.cores};
  for (const auto& gpu : machine_.gpus) {
    if (share.gpus.size() < need.gpus && need.takes(gpu)) add_gpu(share, gpu);
  }
  if (is_nothing(share)) return;
  holdings_[job.id] = {std::nullopt, std::move(share), job.current()->number, true};
  changed(job.id);
}

void MachineLedger::settle(core::JobId job) {
  const auto found = holdings_.find(job);
  if (found == holdings_.end() || !found->second.launch) return;
  found->second.launch.reset();
  changed(job);
}

MachineLedger::Taker MachineLedger::taker_of(const OwnGpu& gpu) const {
  Taker taker;
  for (const auto& [job, holding] : holdings_) {
    for (const auto* share : {&holding.launch, &holding.attempt}) {
      const auto found = *share ? overlap_of(**share, gpu) : Overlap::kNone;
      if (found == Overlap::kSame) return {job, false};
      if (found == Overlap::kUnknown && taker.job == 0) taker = {job, true};
    }
  }
  return taker;
}

// Every waiting job takes one at least, so this ends after as many jobs as there are free GPUs.
std::vector<const OwnGpu*> MachineLedger::gpus_left(const MachineNeed& need, Place place) const {
  auto left = free_gpus_;
  for (auto at = for_gpus_.begin(); at != for_gpus_.end() && at->first < place && left.size() >= need.gpus; ++at) {
    auto wanted = at->second.need.gpus;
    std::erase_if(left, [&](const OwnGpu* gpu) { return wanted > 0 && at->second.need.takes(*gpu) && wanted-- > 0; });
  }
  std::erase_if(left, [&](const OwnGpu* gpu) { return !need.takes(*gpu); });
  return left;
}

std::uint32_t MachineLedger::cores_left(const MachineNeed& need, Place place) const {
  auto left = free_cores_;
  for (auto at = for_cores_.begin(); at != for_cores_.end() && at->first < place && left >= need.cores; ++at) {
    left -= std::min(left, at->second.need.cores);
  }
  return left;
}

bool MachineLedger::can_ever(const MachineNeed& need) const {
  return need.gpus <= executors::most_gpus(machine_, need) && need.cores <= machine_.cores;
}

std::optional<core::MachineShare> MachineLedger::choose(const MachineNeed& need, Place place) const {
  core::MachineShare share;
  if (need.gpus > 0) {
    const auto left = gpus_left(need, place);
    if (left.size() < need.gpus) return std::nullopt;
    for (std::size_t i = 0; i < need.gpus; ++i) add_gpu(share, *left[i]);
  }
  if (need.cores > 0 && cores_left(need, place) < need.cores) return std::nullopt;
  share.cores = need.cores;
  return share;
}

common::Wait MachineLedger::why(const MachineNeed& need, Place place) const {
  if (!can_ever(need)) {
    const bool of_gpus = need.gpus > executors::most_gpus(machine_, need);
    if (of_gpus && machine_.is_unsure) {
      return {"waits for " + core::count_text(need.gpus, "GPU") + ": " + machine_.gpus_from,
              "It starts by itself once the driver lists them, which musterd asks again and again. See whether "
              "nvidia-smi answers, " +
                  machine_.gpus_remedy};
    }
    const auto asked = of_gpus ? core::count_text(need.gpus, "GPU") : core::count_text(need.cores, "core");
    const auto has = of_gpus ? executors::most_gpus(machine_, need) : machine_.cores;
    const std::string from = !of_gpus || machine_.gpus_from.empty() ? "" : " (" + machine_.gpus_from + ")";
    return {"can't start here now: it asks for " + asked + ", and this machine has " + std::to_string(has) + from,
            "It starts once musterd finds so many at its start; or cancel it, and submit it with fewer"};
  }
  if (need.gpus > 0 && gpus_left(need, place).size() < need.gpus) return why_gpus(need);
  return why_cores(need);
}

common::Wait MachineLedger::why_gpus(const MachineNeed& need) const {
  auto free = free_gpus_;
  std::erase_if(free, [&](const OwnGpu* gpu) { return !need.takes(*gpu); });
  const auto what = core::count_text(need.gpus, "GPU");
  if (free.size() < need.gpus) {
    std::vector<core::JobId> jobs, doubtful;
    for (std::size_t i = 0; i < takers_.size(); ++i) {
      if (!need.takes(machine_.gpus[i]) || takers_[i].job == 0) continue;
      (takers_[i].may_have ? doubtful : jobs).push_back(takers_[i].job);
    }
    if (doubtful.empty()) return {lacking(what, free.size(), jobs), kWhenTheyEnd};
    // One of several is enough to know what to do.
    const auto job = doubtful.front();
    return {"waits for " + what + ": " + doubt_text(job),
            "It starts by itself when job " + std::to_string(job) +
                " has ended. Or start musterd with the GPUs named as before (--local-gpus " + in_doubt_.at(job) +
                "), or where nvidia-smi answers"};
  }
  const auto& before = for_gpus_.begin()->second;
  return in_turn(what, before.job, before.need.gpus);
}

common::Wait MachineLedger::why_cores(const MachineNeed& need) const {
  const auto what = core::count_text(need.cores, "core");
  const auto free = free_cores_;
  if (free < need.cores) {
    std::vector<core::JobId> jobs;
    for (const auto& [job, holding] : holdings_) {
      const auto& share = holding.launch ? holding.launch : holding.attempt;
      if (share->cores > 0) jobs.push_back(job);
    }
    return {lacking(what, free, jobs), kWhenTheyEnd};
  }
  const auto& before = for_cores_.begin()->second;
  return in_turn(what, before.job, before.need.cores);
}

std::string MachineLedger::doubt_text(core::JobId job) const {
  return "nobody can tell which GPU job " + std::to_string(job) + " has: it was given " + in_doubt_.at(job) +
         ", and now musterd knows GPUs by other names, so all that may be its own are held back";
}

void MachineLedger::line_up(core::JobId job, const MachineNeed& need, Place place) {
  step_back(job);
  if (!can_ever(need)) return;
  places_[job] = place;
  if (need.gpus > 0) for_gpus_[place] = {job, need};
  if (need.cores > 0) for_cores_[place] = {job, need};
}

void MachineLedger::step_back(core::JobId job) {
  const auto found = places_.find(job);
  if (found == places_.end()) return;
  for_gpus_.erase(found->second);
  for_cores_.erase(found->second);
  places_.erase(found);
}

muster::v1::MachineView MachineLedger::view() const {
  muster::v1::MachineView view;
  view.set_name(machine_.name);
  view.set_gpus_from(machine_.gpus_from);
  view.set_cores(machine_.cores);
  view.set_cores_taken(machine_.cores - free_cores_);
  for (std::size_t i = 0; i < machine_.gpus.size(); ++i) {
    const auto& gpu = machine_.gpus[i];
    auto& out = *view.add_gpus();
    out.set_number(gpu.number);
    out.set_id(gpu.id);
    out.set_name(gpu.name);
    if (takers_[i].job == 0) continue;
    out.set_job_id(takers_[i].job);
    out.set_attempt(holdings_.at(takers_[i].job).number);
    out.set_held_back(takers_[i].may_have);
  }
  for (const auto& [job, holding] : holdings_) {
    const auto& share = holding.launch ? *holding.launch : *holding.attempt;
    auto& out = *view.add_holders();
    out.set_job_id(job);
    out.set_attempt(holding.number);
    for (const auto& gpu : share.gpus) out.add_gpus(gpu);
    out.set_cores(share.cores);
  }
  std::map<Place, core::JobId> waiting;
  for (const auto& [job, place] : places_) waiting.emplace(place, job);
  for (const auto& [place, job] : waiting) view.add_waiting(job);
  return view;
}

}  // namespace admission
