#include "controller/executors/slurm/poller.h"

#include <pwd.h>

#include <spdlog/spdlog.h>

#include <array>
#include <cstdlib>

#include "controller/executors/slurm/attempt_files.h"
#include "slurm/batch_script.h"
#include "slurm/pending_reason.h"

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

Listing::Listing(const std::vector<::slurm::ListedJob>& jobs) {
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
  const auto name = launcher_.name_of(job.comment);
  if (!name) return std::nullopt;
  if (!name->is_array) return name->first;
  if (!job.id.array_task) return std::nullopt;
  const auto [place, fresh] = sets_.try_emplace(job.comment);
  if (fresh) {
    try {
      place->second = read_set_file(launcher_.folder_of_set(name->first) / kSetFile);
    } catch (const std::exception& error) {
      spdlog::warn("which attempts {} are cannot be read: {}", job.comment, error.what());
    }
  }
  const auto& members = place->second;
  return *job.id.array_task < members.size() ? std::optional(members[*job.id.array_task]) : std::nullopt;
}

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
