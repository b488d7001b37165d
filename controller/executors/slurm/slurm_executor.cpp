#include "executors/slurm/slurm_executor.h"

#include <pwd.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <array>
#include <condition_variable>
#include <cstdlib>
#include <map>
#include <mutex>
#include <set>
#include <thread>

#include "executors/scheduler_handle.h"
#include "executors/slurm/ask_cluster.h"
#include "executors/slurm/health_check.h"
#include "executors/slurm/job_doubt.h"
#include "executors/slurm/launch_failure.h"
#include "executors/slurm/launcher.h"
#include "executors/slurm/log_words.h"
#include "executors/slurm/node_check.h"
#include "executors/slurm/script_plan.h"
#include "executors/slurm/slurm_attempt.h"
#include "executors/slurm/slurm_clock.h"
#include "executors/slurm/task_files.h"
#include "slurm/pending_reason.h"

namespace runtime::on_slurm {
namespace {

constexpr core::Millis kTick{50};
constexpr int kIdleTimes = 10;
/// Between a launch that failed and giving up on the name of the node.
constexpr core::Millis kDrainPatience{3000};
/// A node that takes a connection does so at once; all together.
constexpr core::Millis kNodesAnswerWithin{700};
/// Jobs that are asked for by number after one listing.
constexpr std::size_t kMostAsked = 32;

/// One attempt: who it is in Slurm, and what is concluded of it.
struct Attempt {
  SlurmAttempt follower;
  JobIdentity job;
  std::filesystem::path folder;
  std::optional<::slurm::ListedJob> listed;        // as the newest listing has it, if its number is still ours there
  std::vector<core::EventBody> told = {};          // besides what the follower tells, and before it
  bool checked = false;                            // its health check's word is read, or who could not start it told
  std::optional<core::Millis> unlaunched_at = {};  // who could not start it is asked since
  core::Time submitted_after{}, submitted_before{};
  std::string exclude = {};                        // what its job file wants none of
  std::vector<std::string> left_out = {};          // what it gets none of besides, as long as it is lost
  std::string refused = {};                        // what Slurm refused last, and why
  std::optional<core::Time> suspended_since = {};  // as far as listings have told
  JobDoubt doubt = {};                             // whether its place in the newest listing may be believed
};

/// How far the moment of which accounting says that it was submitted may be from when we did: an sbatch may be slow.
constexpr core::Millis kClocksApart{60'000};

/// "ada", or the number itself where nobody has it.
std::string person(const std::string& user_id) {
  if (user_id.empty() || user_id.find_first_not_of("0123456789") != std::string::npos) return user_id;
  std::array<char, 4096> buffer{};
  passwd entry{};
  passwd* found = nullptr;
  ::getpwuid_r(static_cast<uid_t>(std::strtoul(user_id.c_str(), nullptr, 10)), &entry, buffer.data(), buffer.size(),
               &found);
  return found == nullptr ? user_id : found->pw_name;
}

/// The run of an attempt among those that accounting remembers: its job's first. Numbers are given twice, and comments
/// are kept by few clusters.
std::optional<::slurm::PastRun> run_of(const Attempt& attempt, const std::vector<::slurm::PastRun>& runs,
                                       const SlurmClock& clock) {
  std::optional<::slurm::PastRun> first;
  for (const auto& run : runs) {
    if (run.id != attempt.job.id || !run.submitted || (!run.comment.empty() && run.comment != attempt.job.comment))
      continue;
    if (clock.ours(*run.submitted) < attempt.submitted_after - kClocksApart) continue;
    if (first && first->submitted <= run.submitted) continue;
    first = run;
  }
  if (!first || !first->ended) return std::nullopt;
  if (clock.ours(*first->submitted) > attempt.submitted_before + kClocksApart) return std::nullopt;
  first->state.by = person(first->state.by);
  return first;
}

/// Jobs by their numbers; those that a listing has must outlive it.
class Listing {
 public:
  explicit Listing(const std::vector<::slurm::ListedJob>& jobs) : jobs_(jobs) {
    for (const auto& job : jobs) by_id_.emplace(job.id, &job);
  }
  const std::vector<::slurm::ListedJob>& jobs() const { return jobs_; }
  bool has(const ::slurm::JobId& id) const { return by_id_.contains(id); }
  /// nullptr: it is not listed, or its number is another job's now.
  const ::slurm::ListedJob* row_of(const JobIdentity& job) const {
    const auto found = by_id_.find(job.id);
    return found == by_id_.end() || !job.is(*found->second) ? nullptr : found->second;
  }

 private:
  const std::vector<::slurm::ListedJob>& jobs_;
  std::map<::slurm::JobId, const ::slurm::ListedJob*> by_id_;
};

std::string state_of(const ::slurm::ListedJob& job) {
  const bool known = job.state.state != ::slurm::JobState::kUnknown;
  return known ? std::string(::slurm::name(job.state.state)) : job.state.text;
}

bool waits_for_its_first_run(const ::slurm::ListedJob& job) {
  return job.restarts == 0 && ::slurm::classify(job.state.state) == ::slurm::JobPhase::kQueued;
}

bool is_down(const ::slurm::Node& node) {
  if (!node.responds) return true;
  return std::ranges::any_of(node.states, [](const std::string& state) { return state == "DOWN" || state == "FAIL"; });
}

}  // namespace

class SlurmExecutor::Impl {
 public:
  Impl(::slurm::Scheduler& scheduler, Clock& clock, SlurmOptions options)
      : scheduler_(scheduler),
        clock_(clock),
        options_(std::move(options)),
        launcher_(scheduler, clock, options_, [this] { return list(clock_.monotonic()); }) {}

  void set_history(std::function<bool(const core::AttemptKey&)> is_over) { is_over_ = std::move(is_over); }
  void set_lost_nodes(std::function<LostNodes()> lost) { lost_nodes_ = std::move(lost); }
  void start(FactSink sink) {
    sink_ = std::move(sink);
    poller_ = std::thread([this] { run_poller(); });
    ticker_ = std::thread([this] { run_ticker(); });
  }
  void shutdown();

  std::vector<LaunchAnswer> launch_all(const std::vector<LaunchRequest>& requests);
  std::optional<LaunchAnswer> withdraw(const LaunchRequest& request);
  void take(const LaunchRequest& request, LaunchAnswer& answer);
  void adopt(const core::AttemptKey& key, const core::Attempt& attempt);
  template <typename Do>
  void with(const core::AttemptKey& key, Do&& action) {
    {
      std::lock_guard lock(mutex_);
      const auto found = attempts_.find(key);
      if (found == attempts_.end()) return;
      action(found->second);
      urgent_ = urgent_ || found->second.follower.wants_listing();
    }
    wake_.notify_all();
  }
  void stop(const core::AttemptKey& key, const StopRequest& how);
  Vouch vouch(const core::AttemptKey& key, core::RankNumber rank);
  std::optional<std::filesystem::path> folder_of_silent(const core::AttemptKey& key, core::RankNumber rank) const;
  void was_deaf() {
    std::lock_guard lock(mutex_);
    for (auto& [key, attempt] : attempts_) attempt.follower.was_deaf(clock_.monotonic());
  }
  bool follows(const core::AttemptKey& key) const {
    std::lock_guard lock(mutex_);
    return attempts_.contains(key);
  }
  /// Its number, if the newest listing has our job under it: slurmctld gives numbers again that it has lost.
  std::optional<::slurm::JobId> id_of(const core::AttemptKey& key) const {
    std::lock_guard lock(mutex_);
    const auto found = attempts_.find(key);
    return found == attempts_.end() || !found->second.listed ? std::nullopt : std::optional(found->second.job.id);
  }
  std::optional<Trouble> trouble() const {
    std::lock_guard lock(mutex_);
    return trouble_;
  }
  std::optional<QueueWord> queue_word(const core::AttemptKey& key) const;
  std::string comment_of(const core::AttemptKey& key) const { return launcher_.comment_of(key); }
  std::vector<std::string> scripts(const std::vector<LaunchRequest>& requests) { return launcher_.scripts(requests); }
  /// False: Slurm could not be asked. A refusal is Slurm's last word.
  bool told(const ::slurm::Answer<::slurm::Done>& answer, const core::AttemptKey& key, const char* what);

  ::slurm::Scheduler& scheduler_;
  Clock& clock_;
  const SlurmOptions options_;

 private:
  void follow(Followed what, const std::string& handle, std::filesystem::path folder,
              std::optional<SubmissionRecord> record, core::Time handed_over);
  std::filesystem::path folder_of(const core::AttemptKey& key) const {
    return options_.root / "jobs" / std::to_string(key.job) / ("attempt-" + std::to_string(key.number));
  }
  void run_poller();
  void run_ticker();
  void poll();
  void ask_nodes();
  std::string port_of_slurmds();
  void ask_clock();
  ::slurm::Answer<std::vector<::slurm::ListedJob>> list(core::Millis asked_at);
  static bool contradicts(const Attempt& attempt, const ::slurm::ListedJob* row, core::Millis asked_at);
  std::vector<std::uint64_t> doubtful(const Listing& listing, core::Millis asked_at);
  std::string what_is_wrong(const Listing& listing, core::Millis asked_at, std::uint64_t number,
                            const std::vector<::slurm::ListedJob>& found);
  void take_listing(const Listing& listing, core::Millis asked_at);
  void tell_unfit_nodes(const std::vector<::slurm::ListedJob>& jobs);
  void tell_nodes_without_launch(const std::vector<::slurm::ListedJob>& jobs);
  void ask_history(const Listing& listing);
  void read_files();
  void end_exclusions();
  void cancel_wanted();
  void cancel_leftovers(const std::vector<::slurm::ListedJob>& jobs);
  std::vector<std::pair<const ::slurm::ListedJob*, core::AttemptKey>> unfollowed(
      const std::vector<::slurm::ListedJob>& jobs);
  const std::vector<core::AttemptKey>& members_of(const std::string& comment);
  void forget_cancelled();
  DownNodes down_nodes(const std::vector<::slurm::ListedJob>& jobs);
  void note(const std::string& why);

  Launcher launcher_;
  std::function<bool(const core::AttemptKey&)> is_over_;
  std::function<LostNodes()> lost_nodes_;
  FactSink sink_;
  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::map<core::AttemptKey, Attempt> attempts_;
  std::map<core::AttemptKey, std::string> later_;  // why it has not been handed over yet
  std::set<core::AttemptKey> launching_;
  // The poller's.
  std::map<::slurm::JobId, core::Millis> leftover_since_;
  std::map<std::string, std::vector<core::AttemptKey>> sets_;  // by comment
  std::optional<Trouble> trouble_;
  SlurmClock slurm_clock_;
  NodeCheck node_check_;
  bool urgent_ = false, closed_ = false;
  std::thread poller_, ticker_;
};

void SlurmExecutor::Impl::shutdown() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify_all();
  if (poller_.joinable()) poller_.join();
  if (ticker_.joinable()) ticker_.join();
}

std::vector<LaunchAnswer> SlurmExecutor::Impl::launch_all(const std::vector<LaunchRequest>& requests) {
  {
    std::lock_guard lock(mutex_);
    for (const auto& request : requests) launching_.insert(request.key);
  }
  std::vector<LaunchAnswer> answers;
  try {
    answers = launcher_.launch_all(requests);
  } catch (const std::exception& error) {
    answers.clear();
    for (const auto& request : requests) {
      answers.emplace_back(LaunchLater{.why = error.what(), .unsure = may_be_submitted(request.attempt_folder)});
    }
  }
  for (std::size_t i = 0; i < requests.size(); ++i) take(requests[i], answers[i]);
  return answers;
}

void SlurmExecutor::Impl::take(const LaunchRequest& request, LaunchAnswer& answer) {
  try {
    if (auto* launched = std::get_if<core::AttemptLaunched>(&answer)) {
      const auto record = read_record(request.attempt_folder);
      if (record) launched->time_limit = record->time_limit;
      follow({request.key, request.nodes * request.ranks_per_node, request.ranks_per_node, false, false,
              request.stop_grace},
             launched->handle, request.attempt_folder, record, clock_.wall());
    }
  } catch (const std::exception& error) {
    answer = LaunchLater{.why = error.what(), .unsure = true};
  }
  std::lock_guard lock(mutex_);
  launching_.erase(request.key);
  if (const auto* later = std::get_if<LaunchLater>(&answer)) {
    later_[request.key] = later->why;
  } else {
    later_.erase(request.key);
  }
}

std::optional<LaunchAnswer> SlurmExecutor::Impl::withdraw(const LaunchRequest& request) {
  std::optional<LaunchAnswer> answer;
  try {
    answer = launcher_.withdraw(request.key, request.attempt_folder);
  } catch (const std::exception& error) {
    answer = LaunchLater{.why = error.what(), .unsure = true};
  }
  if (answer) {
    take(request, *answer);
  } else {
    std::lock_guard lock(mutex_);
    later_.erase(request.key);
  }
  return answer;
}

void SlurmExecutor::Impl::follow(Followed what, const std::string& handle, std::filesystem::path folder,
                                 std::optional<SubmissionRecord> record, core::Time handed_over) {
  const auto key = what.key;
  const auto id = ::slurm::parse_job_id(scheduler_job_of(handle).value_or(""));
  const auto comment = record ? record->comment : launcher_.comment_of(key);
  const auto exclude = record ? record->exclude : std::string();
  const auto left_out = record ? record->left_out : std::vector<std::string>();
  const auto work_folder = record && !record->set_folder.empty() ? record->set_folder : folder.string();
  // Of an array its set knows when.
  if (record && !record->set_folder.empty()) record = read_record(record->set_folder);
  const core::Time tried_at(core::Millis(record ? record->tried_at_ms : 0));
  {
    std::lock_guard lock(mutex_);
    attempts_.try_emplace(key, Attempt{SlurmAttempt(std::move(what), clock_.monotonic()),
                                       {id.value_or(::slurm::JobId{}), comment, work_folder},
                                       std::move(folder),
                                       std::nullopt,
                                       {},
                                       false,
                                       std::nullopt,
                                       tried_at,
                                       handed_over,
                                       exclude,
                                       left_out});
    urgent_ = true;
  }
  wake_.notify_all();
}

void SlurmExecutor::Impl::adopt(const core::AttemptKey& key, const core::Attempt& attempt) {
  const auto folder = folder_of(key);
  const auto record = read_record(folder);
  const auto found = record.value_or(SubmissionRecord{});
  Followed what{key,
                static_cast<std::uint32_t>(attempt.ranks.size()),
                found.ranks_per_node,
                attempt.started_at.has_value(),
                attempt.state == core::AttemptState::kDraining,
                found.stop_grace};
  follow(std::move(what), attempt.handle, folder, record, attempt.queued_at.value_or(clock_.wall()));
}

// A task that could reach nobody has left its word in a file. Where that says nothing of an end, whether its node is
// there is another's word, or is found out.
Vouch SlurmExecutor::Impl::vouch(const core::AttemptKey& key, core::RankNumber rank) {
  if (const auto folder = folder_of_silent(key, rank)) {
    const auto report = read_rank_status(*folder, rank);
    with(key, [&](Attempt& attempt) { attempt.follower.file(rank, report ? &*report : nullptr, clock_.monotonic()); });
  }
  std::lock_guard lock(mutex_);
  const auto found = attempts_.find(key);
  if (found == attempts_.end()) return Vouch::kUnknown;
  const auto now = clock_.monotonic();
  const auto word = found->second.follower.vouch(rank, now);
  if (word != Vouch::kUnknown) return word;
  const auto node = found->second.follower.node_of_missed(rank, now);
  if (node.empty()) return word;
  const bool heard =
      std::ranges::any_of(attempts_, [&](const auto& entry) { return entry.second.follower.hears_on(node, now); });
  if (heard) return Vouch::kNodeAnswers;
  switch (node_check_.word(node, now)) {
    case NodeCheck::Word::kAnswers:
      return Vouch::kNodeAnswers;
    case NodeCheck::Word::kSilent:
      return Vouch::kUnknown;
    case NodeCheck::Word::kAsking:
      break;
  }
  urgent_ = true;
  wake_.notify_all();
  return Vouch::kAsking;
}

// Where the status file of a rank lies that has fallen silent; nullopt: it has not.
std::optional<std::filesystem::path> SlurmExecutor::Impl::folder_of_silent(const core::AttemptKey& key,
                                                                           core::RankNumber rank) const {
  std::lock_guard lock(mutex_);
  const auto found = attempts_.find(key);
  if (found == attempts_.end()) return std::nullopt;
  const auto now = clock_.monotonic();
  const auto& follower = found->second.follower;
  const bool silent = follower.vouch(rank, now) == Vouch::kUnknown && follower.has_fallen_silent(rank, now);
  return silent ? std::optional(found->second.folder) : std::nullopt;
}

// Empty: Slurm does not say now.
std::string SlurmExecutor::Impl::port_of_slurmds() {
  const auto config = scheduler_.config();
  if (!config) return {};
  const auto found = config->fields.find("SlurmdPort");
  return found == config->fields.end() ? std::string() : found->second;
}

// Before anything that may take long.
void SlurmExecutor::Impl::ask_nodes() {
  std::vector<std::string> wanted;
  {
    std::lock_guard lock(mutex_);
    node_check_.forget_old(clock_.monotonic());
    wanted = node_check_.wanted();
  }
  if (wanted.empty()) return;
  const auto nodes = scheduler_.nodes();
  if (!nodes) return;  // and nobody has said that they are there
  std::vector<::slurm::Node> asked;
  for (const auto& node : *nodes) {
    if (std::ranges::find(wanted, node.name) != wanted.end()) asked.push_back(node);
  }
  const auto answers = ask(asked, port_of_slurmds(), kNodesAnswerWithin);
  std::lock_guard lock(mutex_);
  for (const auto& [name, there] : answers) node_check_.answered(name, there, clock_.monotonic());
}

void SlurmExecutor::Impl::stop(const core::AttemptKey& key, const StopRequest& how) {
  with(key, [&](Attempt& attempt) { attempt.follower.stop(how, clock_.monotonic()); });
}

std::optional<QueueWord> SlurmExecutor::Impl::queue_word(const core::AttemptKey& key) const {
  std::lock_guard lock(mutex_);
  const auto found = attempts_.find(key);
  QueueWord word;
  if (found == attempts_.end()) {
    const auto later = later_.find(key);
    if (later == later_.end()) return std::nullopt;
    word.sentence = "Not handed to Slurm yet: " + later->second;
    word.action = "Nothing: muster tries again by itself. If it can never be, give it up: muster cancel " +
                  std::to_string(key.job) + ".";
    return word;
  }
  word.scheduler_job = ::slurm::to_string(found->second.job.id);
  word.suspended_since = found->second.suspended_since;
  if (!found->second.listed) return word;
  const auto& job = *found->second.listed;
  if (::slurm::classify(job.state.state) != ::slurm::JobPhase::kQueued) return word;
  word.reason = job.reason;
  const auto text = ::slurm::explain_waiting(job);
  word.sentence = text.sentence;
  word.action = text.action;
  if (job.started) word.expected_start = slurm_clock_.ours(*job.started);
  return word;
}

bool SlurmExecutor::Impl::told(const ::slurm::Answer<::slurm::Done>& answer, const core::AttemptKey& key,
                               const char* what) {
  if (answer.unreachable()) return false;
  if (answer.refused()) {
    with(key, [&](Attempt& attempt) {
      const auto words = std::string(what) + ": " + answer.why();
      if (std::exchange(attempt.refused, words) == words) return;
      spdlog::warn("job {} attempt {}: Slurm will not {}", key.job, key.number, words);
    });
  }
  return true;
}

void SlurmExecutor::Impl::run_ticker() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    std::vector<std::pair<core::JobId, core::EventBody>> facts;
    std::map<std::size_t, std::filesystem::path> unheard;  // which of them end an attempt of which nobody was heard
    std::vector<core::AttemptKey> over;
    const auto now = clock_.monotonic();
    for (auto& [key, attempt] : attempts_) {
      attempt.follower.tick(now);
      for (auto& fact : std::exchange(attempt.told, {})) facts.emplace_back(key.job, std::move(fact));
      for (auto& fact : attempt.follower.take_facts()) {
        const auto* gone = std::get_if<core::AttemptGone>(&fact);
        const bool failed = gone != nullptr && gone->cause == core::Cause::kFailed;
        if (failed && attempt.follower.never_heard()) unheard.emplace(facts.size(), attempt.folder);
        facts.emplace_back(key.job, std::move(fact));
      }
      if (attempt.follower.over()) over.push_back(key);
    }
    lock.unlock();
    for (const auto& [place, folder] : unheard) {
      std::get<core::AttemptGone>(facts[place].second).reason += quote_of_log(folder);
    }
    for (auto& [job, fact] : facts) sink_(job, std::move(fact));
    lock.lock();
    // Not before their end is told: unknown here, their ranks would be called silent.
    for (const auto& key : over) attempts_.erase(key);
    if (!closed_) wake_.wait_for(lock, kTick);
  }
}

void SlurmExecutor::Impl::run_poller() {
  auto last = clock_.monotonic() - options_.poll_interval;
  while (true) {
    {
      std::unique_lock lock(mutex_);
      const auto due = [&] {
        const auto passed = clock_.monotonic() - last;
        // With nothing to follow it is enough to notice now and then what an earlier controller has left.
        if (attempts_.empty()) return passed >= options_.poll_interval * kIdleTimes;
        return passed >= (urgent_ ? options_.urgent_interval : options_.poll_interval);
      };
      while (!closed_ && !due()) wake_.wait_for(lock, kTick);
      if (closed_) return;
      urgent_ = false;
    }
    last = clock_.monotonic();
    try {
      poll();
    } catch (const std::exception& error) {
      spdlog::error("Slurm's answer could not be used: {}", error.what());
    }
  }
}

void SlurmExecutor::Impl::poll() {
  ask_nodes();
  forget_cancelled();
  read_files();
  const auto asked_at = clock_.monotonic();
  const auto listed = list(asked_at);
  if (!listed) return note(listed.why());
  note({});
  const Listing listing(*listed);
  ask_clock();
  tell_unfit_nodes(*listed);
  tell_nodes_without_launch(*listed);
  take_listing(listing, asked_at);
  ask_history(listing);
  cancel_wanted();
  end_exclusions();
  cancel_leftovers(*listed);
}

// When a job will end, and when it was submitted, are times of slurmctld's clock.
void SlurmExecutor::Impl::ask_clock() {
  const auto before = clock_.wall();
  {
    std::lock_guard lock(mutex_);
    if (attempts_.empty() || !slurm_clock_.is_due(before, clock_.monotonic())) return;
  }
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

void SlurmExecutor::Impl::note(const std::string& why) {
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

void SlurmExecutor::Impl::take_listing(const Listing& listing, core::Millis asked_at) {
  const auto down = down_nodes(listing.jobs());
  const auto now = clock_.monotonic();
  std::lock_guard lock(mutex_);
  const auto wall = slurm_clock_.theirs(clock_.wall());
  for (auto& [key, attempt] : attempts_) {
    if (asked_at < attempt.follower.since()) continue;
    const auto* row = listing.row_of(attempt.job);
    attempt.listed = row != nullptr ? std::optional(*row) : std::nullopt;
    if (row != nullptr && row->submitted) attempt.job.submitted = row->submitted;
    if (row != nullptr && attempt.unlaunched_at && !attempt.checked) {
      urgent_ = true;
      continue;
    }
    // Asked of this very listing: a launcher may have listed meanwhile, and settled what it knows of the attempt.
    const bool doubtful = contradicts(attempt, row, asked_at);
    if (doubtful && !attempt.doubt.is_believed(attempt.follower.is_heard(now))) continue;
    attempt.follower.observe({row, down, asked_at, now, wall});
    const auto since = attempt.suspended_since.value_or(clock_.wall());
    attempt.suspended_since = attempt.follower.suspended() ? std::optional(since) : std::nullopt;
    urgent_ = urgent_ || attempt.follower.wants_listing();
  }
}

// Slurm's list, unless it contradicts what is known and Slurm, asked for single jobs, proves it wrong: then it is none.
::slurm::Answer<std::vector<::slurm::ListedJob>> SlurmExecutor::Impl::list(core::Millis asked_at) {
  auto jobs = scheduler_.list(options_.user);
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

bool SlurmExecutor::Impl::contradicts(const Attempt& attempt, const ::slurm::ListedJob* row, core::Millis asked_at) {
  if (attempt.job.id.job == 0) return false;
  if (row == nullptr) return attempt.follower.must_be_listed(asked_at);
  return waits_for_its_first_run(*row) && attempt.follower.had_started(asked_at);
}

// Slurm's numbers of the jobs to be asked for, those first that have waited longest.
std::vector<std::uint64_t> SlurmExecutor::Impl::doubtful(const Listing& listing, core::Millis asked_at) {
  std::map<std::uint64_t, core::Millis> wanted;
  {
    const auto now = clock_.monotonic();
    std::lock_guard lock(mutex_);
    for (auto& [key, attempt] : attempts_) {
      if (!contradicts(attempt, listing.row_of(attempt.job), asked_at)) {
        attempt.doubt.settle();
        continue;
      }
      attempt.doubt.raise();
      const auto last = attempt.doubt.asked_at().value_or(core::Millis::min());
      if (attempt.doubt.wants_asking(now)) wanted.try_emplace(attempt.job.id.job, last);
    }
  }
  std::vector<std::uint64_t> numbers;
  for (const auto& [number, last] : wanted) numbers.push_back(number);
  std::ranges::stable_sort(numbers, {}, [&](std::uint64_t number) { return wanted.at(number); });
  if (numbers.size() > kMostAsked) numbers.resize(kMostAsked);
  return numbers;
}

// Empty: what was found under this number agrees with the listing.
std::string SlurmExecutor::Impl::what_is_wrong(const Listing& listing, core::Millis asked_at, std::uint64_t number,
                                               const std::vector<::slurm::ListedJob>& found) {
  std::lock_guard lock(mutex_);
  for (auto& [key, attempt] : attempts_) {
    if (attempt.job.id.job != number || !contradicts(attempt, listing.row_of(attempt.job), asked_at)) continue;
    const auto shown = std::ranges::find_if(found, [&](const auto& job) { return attempt.job.is(job); });
    const bool is_there = shown != found.end();
    if (is_there && shown->submitted) attempt.job.submitted = shown->submitted;
    // Somebody may have changed its comment: then it is known by the moment of its submission from now on.
    const auto* row = listing.row_of(attempt.job);
    if (!contradicts(attempt, row, asked_at)) {
      attempt.doubt.settle();
      continue;
    }
    const bool agrees = row == nullptr ? !is_there : is_there && waits_for_its_first_run(*shown);
    if (agrees) {
      attempt.doubt.confirm(clock_.monotonic());
      continue;
    }
    attempt.doubt.settle();
    const auto name = "Slurm job " + ::slurm::to_string(attempt.job.id);
    return (row == nullptr ? "squeue does not list " + name : "squeue lists " + name + " as " + state_of(*row)) +
           (is_there ? ", which scontrol shows as " + state_of(*shown) : ", which scontrol does not know");
  }
  return {};
}

// One query for all of which no listing tells the end any more.
void SlurmExecutor::Impl::ask_history(const Listing& listing) {
  std::vector<core::AttemptKey> wanted;
  std::set<std::uint64_t> ids;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, attempt] : attempts_) {
      if (!attempt.follower.wants_history() || attempt.job.id.job == 0) continue;
      // Another's number now: what became of ours is not told under it.
      if (listing.has(attempt.job.id) && listing.row_of(attempt.job) == nullptr) continue;
      wanted.push_back(key);
      ids.insert(attempt.job.id.job);
    }
  }
  if (wanted.empty()) return;
  const auto runs = scheduler_.history({ids.begin(), ids.end()});
  if (runs.unreachable()) return spdlog::debug("accounting does not answer: {}", runs.why());
  for (const auto& key : wanted) {
    with(key, [&](Attempt& attempt) {
      const auto run = runs ? run_of(attempt, *runs, slurm_clock_) : std::nullopt;
      if (run || !runs) attempt.follower.remembered(run ? &*run : nullptr, clock_.monotonic());
    });
  }
}

// Before the end itself, which would otherwise be all that is said.
void SlurmExecutor::Impl::tell_unfit_nodes(const std::vector<::slurm::ListedJob>& jobs) {
  std::vector<std::pair<core::AttemptKey, std::filesystem::path>> wanted;
  {
    std::lock_guard lock(mutex_);
    for (const auto& job : jobs) {
      if (!job.exit || job.exit->code != kUnfitExit) continue;
      for (auto& [key, attempt] : attempts_) {
        if (!attempt.job.is(job) || std::exchange(attempt.checked, true)) continue;
        wanted.emplace_back(key, attempt.folder);
      }
    }
  }
  for (const auto& [key, folder] : wanted) {
    auto facts = unfit_nodes_of(folder, key.number);
    with(key, [&](Attempt& attempt) { attempt.told = std::move(facts); });
  }
}

// As the health check's: before the end itself, which waits until they are known. Slurm drains them a moment later.
void SlurmExecutor::Impl::tell_nodes_without_launch(const std::vector<::slurm::ListedJob>& jobs) {
  struct Wanted {
    core::AttemptKey key;
    core::Time submitted;  // by Slurm's clock
    std::vector<std::string> left_out;
  };
  std::vector<Wanted> wanted;
  const auto now = clock_.monotonic();
  {
    std::lock_guard lock(mutex_);
    for (const auto& job : jobs) {
      if (job.restarts == 0 || !is_launch_failure(job)) continue;
      for (auto& [key, attempt] : attempts_) {
        if (!attempt.job.is(job) || attempt.checked) continue;
        if (!attempt.unlaunched_at) attempt.unlaunched_at = now;
        attempt.checked = now - *attempt.unlaunched_at >= kDrainPatience;
        // It has said whole seconds.
        const auto submitted = slurm_clock_.theirs(attempt.submitted_after) - std::chrono::seconds(1);
        wanted.push_back({key, submitted, attempt.left_out});
      }
    }
  }
  if (wanted.empty()) return;
  const auto nodes = scheduler_.nodes();
  if (!nodes) return spdlog::warn("which nodes could not start a job cannot be told: {}", nodes.why());
  for (const auto& [key, submitted, left_out] : wanted) {
    auto facts = nodes_without_launch(*nodes, submitted, left_out, key.number);
    if (facts.empty()) continue;
    with(key, [&](Attempt& attempt) {
      attempt.checked = true;
      attempt.told = std::move(facts);
    });
  }
}

// Asked only when Slurm has requeued something without saying why.
DownNodes SlurmExecutor::Impl::down_nodes(const std::vector<::slurm::ListedJob>& jobs) {
  bool wanted = false;
  {
    std::lock_guard lock(mutex_);
    for (const auto& job : jobs) {
      if (job.restarts == 0 || job.preempted) continue;
      wanted = wanted || std::ranges::any_of(attempts_, [&](const auto& entry) {
                 return entry.second.job.is(job) && !entry.second.follower.ended();
               });
    }
  }
  DownNodes down;
  if (!wanted) return down;
  if (const auto nodes = scheduler_.nodes()) {
    for (const auto& node : *nodes) {
      if (is_down(node)) down.emplace(node.name, node.reason.substr(0, node.reason.find(" [")));
    }
  }
  return down;
}

void SlurmExecutor::Impl::read_files() {
  struct Wanted {
    core::AttemptKey key;
    std::filesystem::path folder;
    std::uint32_t world_size;
    bool script_word;
  };
  std::vector<Wanted> wanted;
  const auto now = clock_.monotonic();
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, attempt] : attempts_) {
      const auto& follower = attempt.follower;
      if (!follower.wants_files(now)) continue;
      wanted.push_back({key, attempt.folder, follower.world_size(), follower.wants_script_word()});
    }
  }
  for (const auto& [key, folder, world_size, script_word] : wanted) {
    // While setup lines or a prolog take their minutes there is none yet.
    const bool any = any_rank_status(folder);
    for (core::RankNumber rank = 0; any && rank < world_size; ++rank) {
      const auto report = read_rank_status(folder, rank);
      with(key,
           [&](Attempt& attempt) { attempt.follower.file(rank, report ? &*report : nullptr, clock_.monotonic()); });
    }
    const bool second_run = script_word && !any && was_begun_already(folder);
    with(key, [&](Attempt& attempt) {
      if (second_run) attempt.follower.was_second_run();
      attempt.follower.files_read(now);
    });
  }
}

void SlurmExecutor::Impl::cancel_wanted() {
  std::vector<std::pair<core::AttemptKey, ::slurm::JobId>> wanted;
  {
    const auto now = clock_.monotonic();
    std::lock_guard lock(mutex_);
    for (const auto& [key, attempt] : attempts_) {
      // Without a listing there is no telling whether the number is still ours.
      if (attempt.follower.wants_cancel(now) && attempt.listed) wanted.emplace_back(key, attempt.job.id);
    }
  }
  if (wanted.empty()) return;
  std::vector<::slurm::JobId> ids;
  for (const auto& [key, id] : wanted) ids.push_back(id);
  const auto answer = scheduler_.cancel(ids);
  if (answer.refused()) spdlog::warn("Slurm will not cancel: {}", answer.why());
  if (answer.unreachable()) return note(answer.why());
  for (const auto& [key, id] : wanted) {
    with(key, [&](Attempt& attempt) { attempt.follower.cancel_sent(clock_.monotonic()); });
  }
}

// What was lost when they were handed over may be back while they wait. One call for all elements of an array.
void SlurmExecutor::Impl::end_exclusions() {
  struct Waiting {
    std::string exclude;
    std::vector<std::string> left_out;
    std::vector<core::AttemptKey> keys;
  };
  std::map<std::uint64_t, Waiting> waiting;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, attempt] : attempts_) {
      if (attempt.left_out.empty() || !attempt.listed || attempt.listed->restarts > 0) continue;
      if (::slurm::classify(attempt.listed->state.state) != ::slurm::JobPhase::kQueued) continue;
      auto& job = waiting.try_emplace(attempt.job.id.job, Waiting{attempt.exclude, attempt.left_out, {}}).first->second;
      job.keys.push_back(key);
    }
  }
  if (waiting.empty() || !lost_nodes_) return;
  const auto lost = lost_nodes_();
  for (auto& [id, job] : waiting) {
    const auto still = kept_off(job.keys.front().job, lost);
    auto left_out = job.left_out;
    std::erase_if(left_out, [&](const auto& node) { return std::ranges::find(still, node) == still.end(); });
    if (left_out == job.left_out) continue;
    auto nodes = left_out;
    if (!job.exclude.empty()) nodes.push_back(job.exclude);
    const auto answer = scheduler_.exclude({id, {}}, nodes);
    if (answer.unreachable()) return note(answer.why());
    // Of an array those that have started meanwhile.
    if (answer.refused()) spdlog::debug("Slurm job {}: {}", id, answer.why());
    for (const auto& key : job.keys) with(key, [&](Attempt& attempt) { attempt.left_out = left_out; });
  }
}

// Jobs of ours in Slurm whose attempts are over: left by a controller that died, or run again by Slurm.
void SlurmExecutor::Impl::cancel_leftovers(const std::vector<::slurm::ListedJob>& jobs) {
  if (!is_over_) return;
  std::vector<::slurm::JobId> leftovers;
  std::set<::slurm::JobId> still_there;
  const auto now = clock_.monotonic();
  for (const auto& [job, key] : unfollowed(jobs)) {
    if (!is_over_(key)) continue;
    still_there.insert(job->id);
    // One that has its nodes may be at its teardown; its ranks are told to leave by themselves.
    const auto since = leftover_since_.try_emplace(job->id, now).first->second;
    const bool active = ::slurm::classify(job->state.state) == ::slurm::JobPhase::kActive;
    const bool may_tear_down = active && job->restarts == 0;
    if (!may_tear_down || now - since >= SlurmAttempt::kTeardownMost) leftovers.push_back(job->id);
  }
  std::erase_if(leftover_since_, [&](const auto& entry) { return !still_there.contains(entry.first); });
  if (leftovers.empty()) return;
  spdlog::info("cancelling {} Slurm jobs whose attempts are over", leftovers.size());
  const auto answer = scheduler_.cancel(leftovers);
  if (!answer) spdlog::warn("they could not be cancelled: {}", answer.why());
}

// Jobs of ours that wait or run, without those that are followed or just being handed over.
std::vector<std::pair<const ::slurm::ListedJob*, core::AttemptKey>> SlurmExecutor::Impl::unfollowed(
    const std::vector<::slurm::ListedJob>& jobs) {
  std::map<::slurm::JobId, core::AttemptKey> followed;
  std::set<core::AttemptKey> launching;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, attempt] : attempts_) followed.emplace(attempt.job.id, key);
    launching = launching_;
  }
  std::vector<std::pair<const ::slurm::ListedJob*, core::AttemptKey>> found;
  std::set<std::string> sets;
  for (const auto& job : jobs) {
    const auto phase = ::slurm::classify(job.state.state);
    if (phase != ::slurm::JobPhase::kQueued && phase != ::slurm::JobPhase::kActive) continue;
    auto key = launcher_.key_of(job.comment);
    if (!key && job.id.array_task && launcher_.set_of(job.comment)) {
      sets.insert(job.comment);
      const auto& members = members_of(job.comment);
      if (*job.id.array_task < members.size()) key = members[*job.id.array_task];
    }
    if (!key || key->job == 0 || launching.contains(*key)) continue;
    const auto here = followed.find(job.id);
    if (here != followed.end() && here->second == *key) continue;
    found.emplace_back(&job, *key);
  }
  std::erase_if(sets_, [&](const auto& entry) { return !sets.contains(entry.first); });
  return found;
}

// Read once for as long as some of its elements wait or run.
const std::vector<core::AttemptKey>& SlurmExecutor::Impl::members_of(const std::string& comment) {
  const auto [place, fresh] = sets_.try_emplace(comment);
  if (fresh) {
    try {
      place->second = read_set_file(*launcher_.set_of(comment) / kSetFile);
    } catch (const std::exception& error) {
      spdlog::warn("which attempts {} are cannot be read: {}", comment, error.what());
    }
  }
  return place->second;
}

// They were never handed over, and never will be.
void SlurmExecutor::Impl::forget_cancelled() {
  if (!is_over_) return;
  std::vector<core::AttemptKey> waiting;
  {
    std::lock_guard lock(mutex_);
    for (const auto& [key, why] : later_) {
      if (!launching_.contains(key)) waiting.push_back(key);
    }
  }
  std::erase_if(waiting, [&](const core::AttemptKey& key) { return !is_over_(key); });
  std::lock_guard lock(mutex_);
  for (const auto& key : waiting) later_.erase(key);
}

SlurmExecutor::SlurmExecutor(::slurm::Scheduler& scheduler, Clock& clock, SlurmOptions options)
    : impl_(std::make_unique<Impl>(scheduler, clock, std::move(options))) {}
SlurmExecutor::~SlurmExecutor() {
  impl_->shutdown();
}
void SlurmExecutor::start(FactSink sink) {
  impl_->start(std::move(sink));
}
void SlurmExecutor::set_lost_nodes(std::function<LostNodes()> lost) {
  impl_->set_lost_nodes(std::move(lost));
}
void SlurmExecutor::set_history(std::function<bool(const core::AttemptKey&)> is_over) {
  impl_->set_history(std::move(is_over));
}
LaunchAnswer SlurmExecutor::launch(const LaunchRequest& request) {
  return impl_->launch_all({request}).front();
}
std::vector<LaunchAnswer> SlurmExecutor::launch_all(const std::vector<LaunchRequest>& requests) {
  return impl_->launch_all(requests);
}
std::optional<LaunchAnswer> SlurmExecutor::withdraw(const LaunchRequest& request) {
  return impl_->withdraw(request);
}
void SlurmExecutor::adopt(const core::AttemptKey& key, const core::Attempt& attempt) {
  impl_->adopt(key, attempt);
}
void SlurmExecutor::stop(const core::AttemptKey& key, const StopRequest& how) {
  impl_->stop(key, how);
}
Vouch SlurmExecutor::vouch(const core::AttemptKey& key, core::RankNumber rank) {
  return impl_->vouch(key, rank);
}
void SlurmExecutor::was_deaf() {
  impl_->was_deaf();
}
HoldAnswer SlurmExecutor::hold(const core::AttemptKey& key, bool hold) {
  const auto id = impl_->id_of(key);
  if (!id) return impl_->follows(key) ? HoldAnswer::kLater : HoldAnswer::kRefused;
  const auto answer = hold ? impl_->scheduler_.hold(*id) : impl_->scheduler_.release(*id);
  if (!impl_->told(answer, key, hold ? "hold it" : "release it")) return HoldAnswer::kLater;
  return answer.refused() ? HoldAnswer::kRefused : HoldAnswer::kDone;
}
LimitAnswer SlurmExecutor::limit(const core::AttemptKey& key, core::Millis limit) {
  const auto id = impl_->id_of(key);
  // Not followed yet, not listed, or no more: then nobody will ask again.
  if (!id) return {LimitAnswer::Kind::kLater};
  const auto answer = impl_->scheduler_.update_time_limit(*id, slurm_minutes(limit));
  if (answer.unreachable()) return {LimitAnswer::Kind::kLater};
  if (answer.refused()) {
    const bool forbidden = answer.refused(::slurm::Refusal::kForbidden);
    return {LimitAnswer::Kind::kRefused,
            answer.why() + (forbidden ? " (only Slurm's operators and admins may give a job more time)" : "")};
  }
  return {};
}
void SlurmExecutor::task(const core::AttemptKey& key, core::RankNumber rank, const TaskReport& report) {
  impl_->with(key, [&](Attempt& attempt) { attempt.follower.task(rank, report, impl_->clock_.monotonic()); });
}
void SlurmExecutor::failing(const core::AttemptKey& key, core::RankNumber rank) {
  impl_->with(key, [&](Attempt& attempt) { attempt.follower.failing(rank); });
}
std::vector<std::string> SlurmExecutor::scripts(const std::vector<LaunchRequest>& requests) {
  return impl_->scripts(requests);
}
ScriptCheck SlurmExecutor::check_script(const std::string& script) {
  const auto answer = impl_->scheduler_.test_only(script);
  ScriptCheck check;
  if (answer.unreachable()) check.unreachable = answer.why();
  if (answer.refused()) check.refusal = answer.why();
  if (!answer) return check;
  if (answer->start) check.start = std::chrono::time_point_cast<core::Millis>(*answer->start);
  check.partition = answer->partition;
  check.nodes = answer->node_list;
  check.cpus = answer->cpus;
  return check;
}
std::optional<Trouble> SlurmExecutor::trouble() const {
  return impl_->trouble();
}
std::optional<QueueWord> SlurmExecutor::queue_word(const core::AttemptKey& key) const {
  return impl_->queue_word(key);
}
std::optional<ClusterFacts> SlurmExecutor::cluster() {
  return ask_cluster(impl_->scheduler_);
}
void SlurmExecutor::shutdown() {
  impl_->shutdown();
}

}  // namespace runtime::on_slurm
