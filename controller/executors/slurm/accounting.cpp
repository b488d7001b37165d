#include <pwd.h>
#include <spdlog/spdlog.h>

#include <array>
#include <cstdlib>
#include <set>

#include "executors/slurm/poller.h"

namespace executors::on_slurm {
namespace {

/// How far accounting's moment of submission may be from musterd's: an sbatch may be slow.
constexpr core::Millis kClocksApart{60'000};

/// "ada", or the number itself where no user has it.
std::string person(const std::string& user_id) {
  if (user_id.empty() || user_id.find_first_not_of("0123456789") != std::string::npos) return user_id;
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  ::getpwuid_r(static_cast<uid_t>(std::strtoul(user_id.c_str(), nullptr, 10)), &entry, buffer.data(), buffer.size(),
               &found);
  return found == nullptr ? user_id : found->pw_name;
}

/// The run of an attempt among those that accounting remembers: the first run of its job. Slurm gives numbers twice,
/// and few clusters keep comments.
std::optional<::slurm::PastRun> run_of(const Tracked& tracked, const std::vector<::slurm::PastRun>& runs,
                                       const SlurmClock& clock) {
  std::optional<::slurm::PastRun> first;
  for (const auto& run : runs) {
    const bool other_comment = !run.comment.empty() && run.comment != tracked.job.comment;
    if (run.id != tracked.job.id || !run.submitted || other_comment) continue;
    if (clock.ours(*run.submitted) < tracked.submitted_after - kClocksApart) continue;
    if (first && first->submitted <= run.submitted) continue;
    first = run;
  }
  if (!first || !first->ended) return std::nullopt;
  if (clock.ours(*first->submitted) > tracked.submitted_before + kClocksApart) return std::nullopt;
  first->state.by = person(first->state.by);
  return first;
}

}  // namespace

// Asks accounting about the attempts whose end no listing tells any more. Makes one query for all of them.
void Poller::ask_accounting(const Listing& listing) {
  const auto wanted = table_.pick([&](const core::AttemptKey& key, const Tracked& tracked) {
    // A number that is another job's now does not tell what became of this job.
    const bool is_anothers = listing.has(tracked.job.id) && listing.row_of(tracked.job) == nullptr;
    const bool wants = tracked.attempt.wants_history() && tracked.job.id.job != 0 && !is_anothers;
    return wants ? std::optional(std::pair(key, tracked.job.id.job)) : std::nullopt;
  });
  if (wanted.empty()) return;
  std::set<std::uint64_t> ids;
  for (const auto& [key, id] : wanted) ids.insert(id);
  const auto runs = scheduler_.history({ids.begin(), ids.end()});
  if (runs.unreachable()) return spdlog::debug("accounting does not answer: {}", runs.why());
  const auto slurm_clock = this->slurm_clock();
  for (const auto& [key, id] : wanted) {
    table_.with(key, [&](Tracked& tracked) {
      const auto run = runs ? run_of(tracked, *runs, slurm_clock) : std::nullopt;
      if (run || !runs) tracked.attempt.remembered(run ? &*run : nullptr, clock_.monotonic());
    });
  }
}

}  // namespace executors::on_slurm
