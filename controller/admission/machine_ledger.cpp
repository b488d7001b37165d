#include "admission/machine_ledger.h"

#include <algorithm>
#include <iterator>

#include "core/text.h"

namespace admission {
namespace {

using executors::MachineNeed;
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

constexpr const char* kWhenTheyEnd = "It starts by itself when enough is free; muster nodes shows who has what.";

std::string in_turn(core::JobId before) {
  return "It starts by itself. GPUs and cores are given in turn, so small jobs keep no large one waiting. To let later "
         "jobs go first: muster hold " +
         std::to_string(before);
}

}  // namespace

// Thousands may wait while nothing changes, so what is free is counted once.
void MachineLedger::count_free() {
  const auto taken = takers();
  free_gpus_.clear();
  for (const auto& gpu : machine_.gpus) {
    if (!taken.contains(gpu.id)) free_gpus_.push_back(&gpu);
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
    if (share.gpus.size() < need.gpus && need.takes(gpu)) share.gpus.push_back(gpu.id);
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

std::optional<core::MachineShare> MachineLedger::share_of(core::JobId job) const {
  const auto found = holdings_.find(job);
  return found == holdings_.end() ? std::nullopt : found->second.launch;
}

std::map<std::string, core::JobId> MachineLedger::takers() const {
  std::map<std::string, core::JobId> all;
  for (const auto& [job, holding] : holdings_) {
    for (const auto* share : {&holding.launch, &holding.attempt}) {
      if (!*share) continue;
      for (const auto& gpu : (*share)->gpus) all.emplace(gpu, job);
    }
  }
  return all;
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
    for (std::size_t i = 0; i < need.gpus; ++i) share.gpus.push_back(left[i]->id);
  }
  if (need.cores > 0 && cores_left(need, place) < need.cores) return std::nullopt;
  share.cores = need.cores;
  return share;
}

base::Wait MachineLedger::why(const MachineNeed& need, Place place) const {
  if (!can_ever(need)) {
    const bool of_gpus = need.gpus > executors::most_gpus(machine_, need);
    const auto asked = of_gpus ? core::count_text(need.gpus, "GPU") : core::count_text(need.cores, "core");
    const auto has = of_gpus ? executors::most_gpus(machine_, need) : machine_.cores;
    const std::string from = !of_gpus || machine_.gpus_from.empty() ? "" : " (" + machine_.gpus_from + ")";
    return {"can't start here now: it asks for " + asked + ", and this machine has " + std::to_string(has) + from,
            "It starts once musterd finds so many at its start; or cancel it, and submit it with fewer"};
  }
  if (need.gpus > 0 && gpus_left(need, place).size() < need.gpus) return why_gpus(need);
  return why_cores(need);
}

base::Wait MachineLedger::why_gpus(const MachineNeed& need) const {
  auto free = free_gpus_;
  std::erase_if(free, [&](const OwnGpu* gpu) { return !need.takes(*gpu); });
  const auto what = core::count_text(need.gpus, "GPU");
  if (free.size() < need.gpus) {
    std::vector<core::JobId> jobs;
    const auto taken = takers();
    for (const auto& gpu : machine_.gpus) {
      const auto taker = taken.find(gpu.id);
      if (need.takes(gpu) && taker != taken.end()) jobs.push_back(taker->second);
    }
    return {lacking(what, free.size(), jobs), kWhenTheyEnd};
  }
  const auto& before = for_gpus_.begin()->second;
  return {"waits for " + what + ": job " + std::to_string(before.job) + " has waited longer, for " +
              std::to_string(before.need.gpus),
          in_turn(before.job)};
}

base::Wait MachineLedger::why_cores(const MachineNeed& need) const {
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
  return {"waits for " + what + ": job " + std::to_string(before.job) + " has waited longer, for " +
              std::to_string(before.need.cores),
          in_turn(before.job)};
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
  const auto taken = takers();
  for (const auto& gpu : machine_.gpus) {
    auto& out = *view.add_gpus();
    out.set_number(gpu.number);
    out.set_id(gpu.id);
    out.set_name(gpu.name);
    const auto taker = taken.find(gpu.id);
    if (taker == taken.end()) continue;
    out.set_job_id(taker->second);
    out.set_attempt(holdings_.at(taker->second).number);
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
