#include "controller/executors/slurm/poller.h"

#include <pwd.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <set>

#include "controller/executors/slurm/attempt_files.h"

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

bool Poller::poll() {
  ask_nodes();
  forget_cancelled();
  read_files();
  const auto asked_at = clock_.monotonic();
  const auto jobs = listings_.ask(asked_at);
  note(jobs.why());
  if (!jobs) return false;
  listed_at_ = clock_.monotonic();
  const Listing listing(*jobs);
  ask_clock();
  tell_unfit_nodes(listing);
  tell_nodes_without_launch(listing);
  take_listing(listing, asked_at);
  read_why_started_again();
  ask_accounting(listing);
  if (const auto why = cancel_wanted(); !why.empty()) note(why);
  if (const auto why = end_exclusions(); !why.empty()) note(why);
  if (is_over_) cancel_leftovers(*jobs);
  return true;
}

std::optional<Trouble> Poller::trouble() const {
  std::lock_guard lock(mutex_);
  return trouble_;
}

SlurmClock Poller::slurm_clock() const {
  std::lock_guard lock(mutex_);
  return slurm_clock_;
}

NodeCheck::Word Poller::word_of(const std::string& node, core::Millis now) {
  std::lock_guard lock(mutex_);
  return node_check_.word(node, now);
}

// An attempt that was not handed over, and whose job was cancelled, never will be.
void Poller::forget_cancelled() {
  if (!is_over_) return;
  std::vector<core::AttemptKey> waiting;
  table_.locked([&](const AttemptTable::State& state) {
    for (const auto& [key, why] : state.later) {
      if (!state.launching.contains(key)) waiting.push_back(key);
    }
  });
  std::erase_if(waiting, [&](const core::AttemptKey& key) { return !is_over_(key); });
  table_.locked([&](AttemptTable::State& state) {
    for (const auto& key : waiting) state.later.erase(key);
  });
}

void Poller::read_files() {
  struct Wanted {
    core::AttemptKey key;
    std::filesystem::path folder, log;
    std::uint32_t world_size;
    bool script_word;
  };
  const auto now = clock_.monotonic();
  const auto wanted = table_.pick([&](const core::AttemptKey& key, const Tracked& tracked) {
    const auto& attempt = tracked.attempt;
    const Wanted found{key, tracked.folder, tracked.log, attempt.world_size(), attempt.wants_script_word()};
    return attempt.wants_files(now) ? std::optional(found) : std::nullopt;
  });
  for (const auto& [key, folder, log, world_size, script_word] : wanted) {
    // There is no file while setup lines or a prolog take their minutes.
    const bool any = any_rank_status(folder);
    for (core::RankNumber rank = 0; any && rank < world_size; ++rank) {
      const auto report = read_rank_status(folder, rank);
      if (!report) continue;
      table_.with(key, [&](Tracked& tracked) { tracked.attempt.file(rank, &*report, clock_.monotonic()); });
    }
    const bool second_run = script_word && !any && was_begun_already(log);
    table_.with(key, [&](Tracked& tracked) {
      if (second_run) tracked.attempt.was_second_run();
      tracked.attempt.files_read(now);
    });
  }
}

// The end and the submission of a job are times of slurmctld's clock.
void Poller::ask_clock() {
  const auto before = clock_.wall();
  const bool idle = table_.locked([](const AttemptTable::State& state) { return state.attempts.empty(); });
  if (idle || !slurm_clock().is_due(before, clock_.monotonic())) return;
  const auto config = scheduler_.config();
  const auto after = clock_.wall();
  std::lock_guard lock(mutex_);
  const auto was = slurm_clock_.ahead();
  slurm_clock_.asked(config ? config->now : std::nullopt, before, after, clock_.monotonic());
  const auto ahead = slurm_clock_.ahead();
  if (std::chrono::abs(ahead - was) < SlurmClock::kSet) return;
  spdlog::warn("slurmctld's clock is {} s {} this machine's; its times are understood so",
               std::chrono::abs(ahead).count() / 1000, ahead.count() > 0 ? "ahead of" : "behind");
}

void Poller::take_listing(const Listing& listing, core::Millis asked_at) {
  const auto down = down_nodes(listing);
  const auto now = clock_.monotonic();
  const auto wall = clock_.wall(), slurm_now = slurm_clock().theirs(wall);
  table_.locked([&](AttemptTable::State& state) {
    for (auto& [key, tracked] : state.attempts) {
      if (asked_at < tracked.attempt.since()) continue;
      const auto* row = listing.row_of(tracked.job);
      tracked.listed = row != nullptr ? std::optional(*row) : std::nullopt;
      if (row != nullptr && row->submitted) tracked.job.submitted = row->submitted;
      if (row != nullptr && tracked.unlaunched_at && !tracked.checked) {
        state.urgent = true;
        continue;
      }
      // A launcher may have listed meanwhile and settled the doubt. This listing is judged by itself.
      const bool doubtful = Listings::contradicts(tracked, row, asked_at);
      if (doubtful && !tracked.doubt.is_believed(tracked.attempt.is_heard(now))) continue;
      tracked.attempt.observe({row, down, asked_at, now, slurm_now});
      const auto since = tracked.suspended_since.value_or(wall);
      tracked.suspended_since = tracked.attempt.suspended() ? std::optional(since) : std::nullopt;
      state.urgent = state.urgent || tracked.attempt.wants_listing();
    }
  });
}

// Returns why Slurm can't be reached; empty: it can.
std::string Poller::cancel_wanted() {
  const auto now = clock_.monotonic();
  // Without a listing nobody knows whether the number is still this job's.
  const auto wanted = table_.pick([&](const core::AttemptKey& key, const Tracked& tracked) {
    const bool wants = tracked.attempt.wants_cancel(now) && tracked.listed;
    return wants ? std::optional(std::pair(key, tracked.job.id)) : std::nullopt;
  });
  if (wanted.empty()) return {};
  std::vector<::slurm::JobId> ids;
  for (const auto& [key, id] : wanted) ids.push_back(id);
  const auto answer = scheduler_.cancel(ids);
  if (answer.refused()) spdlog::warn("Slurm will not cancel: {}", answer.why());
  if (answer.unreachable()) return answer.why();
  for (const auto& [key, id] : wanted) {
    table_.with(key, [&](Tracked& tracked) { tracked.attempt.cancel_sent(clock_.monotonic()); });
  }
  return {};
}

void Poller::note(const std::string& why) {
  if (!why.empty()) spdlog::debug("Slurm does not answer: {}", why);
  std::lock_guard lock(mutex_);
  if (why.empty()) {
    if (trouble_) spdlog::info("Slurm answers again");
    trouble_.reset();
  } else if (!trouble_) {
    spdlog::warn("Slurm can't be reached; what runs goes on: {}", why);
    trouble_ = Trouble{clock_.wall(), why};
  } else {
    trouble_->why = why;
  }
}

// A preempted job waits again within a second. By then listings do not tell of the preemption any more, and not every
// cluster has accounting. slurmstepd's word in the log of the run stays.
void Poller::read_why_started_again() {
  const auto wanted = table_.pick([&](const core::AttemptKey& key, const Tracked& tracked) {
    return tracked.attempt.wants_cause_of_restart() ? std::optional(std::pair(key, tracked.log)) : std::nullopt;
  });
  for (const auto& [key, log] : wanted) {
    if (!was_preempted(log)) continue;
    ::slurm::PastRun run;
    run.state.state = ::slurm::JobState::kPreempted;
    table_.with(key, [&](Tracked& tracked) { tracked.attempt.remembered(&run, clock_.monotonic()); });
  }
}

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
