#include "executors/slurm/poller.h"

#include <spdlog/spdlog.h>

#include <algorithm>

#include "executors/slurm/log_words.h"
#include "executors/slurm/task_files.h"

namespace executors::on_slurm {

void Poller::poll() {
  ask_nodes();
  forget_cancelled();
  read_files();
  const auto asked_at = clock_.monotonic();
  const auto jobs = listings_.ask(asked_at);
  note(jobs.why());
  if (!jobs) return;
  const Listing listing(*jobs);
  ask_clock();
  tell_unfit_nodes(listing);
  tell_nodes_without_launch(listing);
  take_listing(listing, asked_at);
  ask_accounting(listing);
  if (const auto why = cancel_wanted(); !why.empty()) note(why);
  if (const auto why = end_exclusions(); !why.empty()) note(why);
  if (is_over_) cancel_leftovers(*jobs);
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
    std::filesystem::path folder;
    std::uint32_t world_size;
    bool script_word;
  };
  const auto now = clock_.monotonic();
  const auto wanted = table_.pick([&](const core::AttemptKey& key, const Tracked& tracked) {
    const auto& attempt = tracked.attempt;
    const Wanted found{key, tracked.folder, attempt.world_size(), attempt.wants_script_word()};
    return attempt.wants_files(now) ? std::optional(found) : std::nullopt;
  });
  for (const auto& [key, folder, world_size, script_word] : wanted) {
    // There is no file while setup lines or a prolog take their minutes.
    const bool any = any_rank_status(folder);
    for (core::RankNumber rank = 0; any && rank < world_size; ++rank) {
      const auto report = read_rank_status(folder, rank);
      if (!report) continue;
      table_.with(key, [&](Tracked& tracked) { tracked.attempt.file(rank, &*report, clock_.monotonic()); });
    }
    const bool second_run = script_word && !any && was_begun_already(folder);
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

}  // namespace executors::on_slurm
