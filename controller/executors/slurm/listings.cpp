#include "controller/executors/slurm/listings.h"

#include <algorithm>

namespace executors::on_slurm {
namespace {

/// Jobs that are asked for by number after one listing.
constexpr std::size_t kMostAsked = 32;

std::string state_of(const ::slurm::ListedJob& job) {
  const bool known = job.state.state != ::slurm::JobState::kUnknown;
  return known ? std::string(::slurm::name(job.state.state)) : job.state.text;
}

bool waits_for_its_first_run(const ::slurm::ListedJob& job) {
  return job.restarts == 0 && ::slurm::classify(job.state.state) == ::slurm::JobPhase::kQueued;
}

}  // namespace

Listing::Listing(const std::vector<::slurm::ListedJob>& jobs) : jobs_(jobs) {
  for (const auto& job : jobs) by_id_.emplace(job.id, &job);
}

const ::slurm::ListedJob* Listing::row_of(const JobIdentity& job) const {
  const auto found = by_id_.find(job.id);
  return found == by_id_.end() || !job.is(*found->second) ? nullptr : found->second;
}

::slurm::Answer<std::vector<::slurm::ListedJob>> Listings::ask(core::Millis asked_at) {
  auto jobs = scheduler_.list(user_);
  if (!jobs) return jobs;
  const Listing listing(*jobs);
  for (const auto number : doubtful(listing, asked_at)) {
    const auto found = scheduler_.find(number);
    if (!found) return ::slurm::Unreachable{found.why()};
    if (const auto wrong = what_is_wrong(listing, asked_at, number, *found); !wrong.empty()) {
      return ::slurm::Unreachable{"stale listing: " + wrong};
    }
  }
  return jobs;
}

bool Listings::contradicts(const Tracked& tracked, const ::slurm::ListedJob* row, core::Millis asked_at) {
  if (tracked.job.id.job == 0) return false;
  if (row == nullptr) return tracked.attempt.must_be_listed(asked_at);
  return waits_for_its_first_run(*row) && tracked.attempt.had_started(asked_at);
}

// The numbers of the jobs to be asked for. The jobs that have waited longest come first.
std::vector<std::uint64_t> Listings::doubtful(const Listing& listing, core::Millis asked_at) {
  std::map<std::uint64_t, core::Millis> wanted;
  const auto now = clock_.monotonic();
  table_.locked([&](AttemptTable::State& state) {
    for (auto& [key, tracked] : state.attempts) {
      if (!contradicts(tracked, listing.row_of(tracked.job), asked_at)) {
        tracked.doubt.settle();
        continue;
      }
      tracked.doubt.raise();
      const auto last = tracked.doubt.asked_at().value_or(core::Millis::min());
      if (tracked.doubt.wants_asking(now)) wanted.try_emplace(tracked.job.id.job, last);
    }
  });
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, last] : wanted) numbers.push_back(number);
  std::ranges::stable_sort(numbers, {}, [&](std::uint64_t number) { return wanted.at(number); });
  if (numbers.size() > kMostAsked) numbers.resize(kMostAsked);
  return numbers;
}

// Empty: what was found under this number agrees with the listing.
std::string Listings::what_is_wrong(const Listing& listing, core::Millis asked_at, std::uint64_t number,
                                    const std::vector<::slurm::ListedJob>& found) {
  const auto now = clock_.monotonic();
  return table_.locked([&](AttemptTable::State& state) -> std::string {
    for (auto& [key, tracked] : state.attempts) {
      if (tracked.job.id.job != number || !contradicts(tracked, listing.row_of(tracked.job), asked_at)) continue;
      const auto shown = std::ranges::find_if(found, [&](const auto& job) { return tracked.job.is(job); });
      const bool is_there = shown != found.end();
      if (is_there && shown->submitted) tracked.job.submitted = shown->submitted;
      // Somebody may have changed the comment. The moment of submission identifies the job from now on.
      const auto* row = listing.row_of(tracked.job);
      if (!contradicts(tracked, row, asked_at)) {
        tracked.doubt.settle();
        continue;
      }
      const bool agrees = row == nullptr ? !is_there : is_there && waits_for_its_first_run(*shown);
      if (agrees) {
        tracked.doubt.confirm(now);
        continue;
      }
      tracked.doubt.settle();
      const auto name = "Slurm job " + ::slurm::to_string(tracked.job.id);
      return (row == nullptr ? "squeue does not list " + name : "squeue lists " + name + " as " + state_of(*row)) +
             (is_there ? ", which scontrol shows as " + state_of(*shown) : ", which scontrol does not know");
    }
    return {};
  });
}

}  // namespace executors::on_slurm
