#include "executors/slurm/accounting.h"

#include <pwd.h>
#include <spdlog/spdlog.h>

#include <array>
#include <cstdlib>

namespace runtime::on_slurm {
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

void ask_accounting(::slurm::Scheduler& scheduler, AttemptTable& table, const Listing& listing,
                    const SlurmClock& slurm_clock, const Clock& clock) {
  std::vector<core::AttemptKey> wanted;
  std::set<std::uint64_t> ids;
  table.locked([&](const AttemptTable::State& state) {
    for (const auto& [key, tracked] : state.attempts) {
      if (!tracked.attempt.wants_history() || tracked.job.id.job == 0) continue;
      // The number is another job's now, and does not tell what became of this one.
      if (listing.has(tracked.job.id) && listing.row_of(tracked.job) == nullptr) continue;
      wanted.push_back(key);
      ids.insert(tracked.job.id.job);
    }
  });
  if (wanted.empty()) return;
  const auto runs = scheduler.history({ids.begin(), ids.end()});
  if (runs.unreachable()) return spdlog::debug("accounting does not answer: {}", runs.why());
  for (const auto& key : wanted) {
    table.with(key, [&](Tracked& tracked) {
      const auto run = runs ? run_of(tracked, *runs, slurm_clock) : std::nullopt;
      if (run || !runs) tracked.attempt.remembered(run ? &*run : nullptr, clock.monotonic());
    });
  }
}

}  // namespace runtime::on_slurm
