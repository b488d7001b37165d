#pragma once

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "controller/core/event.h"
#include "controller/core/job.h"
#include "controller/executors/executor.h"
#include "slurm/scheduler.h"

namespace executors::on_slurm {

/// Nodes that Slurm calls down, each with the reason that Slurm gives.
using DownNodes = std::map<std::string, std::string>;

/// Facts that one poll tells about one attempt.
struct Observation {
  const ::slurm::ListedJob* job = nullptr;  // nullptr: the listing lacks the job
  const DownNodes& down;
  core::Millis asked_at{0};  // squeue was called then
  core::Millis now{0};
  core::Time slurm_now{};  // the same moment by slurmctld's clock
};

inline constexpr const char* kForgotten = "Slurm does not know any more that it runs, and starts it again";

/// Why an attempt ends, as far as Slurm's words tell.
struct Verdict {
  enum class By {
    kNobody,  // Slurm has not said anything
    kSlurm,   // Slurm ends the run. The ranks' exits follow from it
    kRanks,   // the run ended by itself. The exits of its ranks are the cause; `cause` stands in for ranks without one
  };
  By by = By::kNobody;
  core::Cause cause = core::Cause::kFailed;
  std::string reason = {};
  bool save = false;             // the ranks may still save
  bool accounting_next = false;  // accounting may know more than the listing
  bool run_again = false;        // Slurm starts the job again, or has done so
  bool is_success = false;       // Slurm calls the run COMPLETED
};

/// Facts that are known when explain() is asked.
struct Evidence {
  const ::slurm::ListedJob& job;
  const std::vector<std::string>& nodes;  // where the ranks run, by rank; empty: not known
  const DownNodes& down;
  bool preempted = false;  // some listing had a PreemptTime. Slurm deletes PreemptTime when the job waits again
  bool begun = false;      // this attempt's run has begun
  bool all_begun = false;  // every rank of it has
};

/// Slurm starts the job again: it counts a restart, or it lists a run that has begun as waiting. In the second case
/// slurmctld died before it had written down the start.
bool is_run_again(const Evidence& evidence);

/// Explains what the listing means. Pure. The first rule that fits is the answer.
Verdict explain(const Evidence& evidence);

/// Explains accounting's record of the run. `run_again`: Slurm starts the job again, and a listing did not say why.
Verdict explain(const ::slurm::PastRun& run, bool run_again, const std::vector<std::string>& nodes);

/// The cause that Slurm's final state means; nullopt where the ranks' own exits tell (COMPLETED, FAILED).
std::optional<core::Cause> cause_of(::slurm::JobState state);

/// The states of the run of an attempt in Slurm.
///
///   Queued --> Running <--> Suspended      listings alone move an attempt among these
///      \          |         /
///       \         v        /
///        +---> Ending <---+
///
///   any of these --> Missing        a listing lacks the job; the next one that has it moves the attempt back
///   any of these --> Requeued       Slurm starts the job again; accounting is asked why
///   any of these --> Cancelled      accounting is asked who cancelled
///   any of all   --> Ended          it is known why the run is over
///
/// Ended is the last state. A second run of the job, which Slurm starts, is no state: see SlurmAttempt::in_slurm_.

/// The job waits, or its nodes boot.
struct Queued {};
struct Running {
  /// Slurm's own limit is near from this moment on: the ranks are to save.
  struct Limit {
    core::Millis save_at{0};
    core::Millis limit{0};
  };
  std::optional<Limit> limit;            // of a job that Slurm will end
  std::optional<core::Millis> woken_at;  // Slurm has resumed the job then
};
/// Nobody is heard, however long it takes.
struct Suspended {};
/// COMPLETING: the nodes are cleaned up, and the final state is not told yet.
struct Ending {
  core::Millis since{0};
};
using Listed = std::variant<Queued, Running, Suspended, Ending>;
struct Missing {
  Listed before;  // in the newest listing that had the job
  core::Millis since{0};
  int listings = 0;
  std::optional<core::Millis> asked_accounting_at;
};
struct Requeued {
  core::Millis asked_accounting_at{0};
};
struct Cancelled {
  ::slurm::ListedJob job;
  core::Millis asked_accounting_at{0};
};
struct Ended {
  Verdict why;
  core::Millis since{0};
};
using SlurmSide = std::variant<Queued, Running, Suspended, Ending, Missing, Requeued, Cancelled, Ended>;

/// The state in the newest listing that had the job; nullopt: Slurm has done with the run.
std::optional<Listed> newest_listed(const SlurmSide& side);

/// The state of a run that a listing has, and that is neither over nor started again. Pure. `stop_grace`: how long a
/// save may take.
Listed next(const Listed& before, const Observation& seen, core::Millis stop_grace);

/// The state of a run that a listing lacks.
Missing next_missing(const SlurmSide& before, core::Millis now);

/// The ranks of an attempt: who is heard, whose exit is held, and in which order exits are told. Pure; times are passed
/// in.
///
/// An exit is held until two things are known: whether Slurm caused the exit (then the rank is "cleared" if it did
/// not), and whether another rank failed first.
class RankExits {
 public:
  explicit RankExits(std::uint32_t world_size) : ranks_(world_size) {}

  struct Rank {
    std::optional<TaskReport> report;
    std::optional<core::Millis> heard_at;
    std::optional<core::Millis> exited_at;          // the exit is held since then
    std::optional<core::Millis> asked_to_leave_at;  // the task told of a SIGTERM from outside
    std::optional<int> failing;                     // its place among the ranks that said that they leave with an error
    bool from_file = false;                         // the exit was read from a file, long after
    bool cleared = false;                           // Slurm did not cause the exit
    bool told = false;
    bool is_held() const { return exited_at && !told; }
    bool heard_within(core::Millis limit, core::Millis now) const { return heard_at && now - *heard_at < limit; }
  };
  std::uint32_t size() const { return static_cast<std::uint32_t>(ranks_.size()); }
  const Rank& operator[](core::RankNumber rank) const { return ranks_[rank]; }

  /// The changes that a task's report makes.
  struct News {
    bool is_news = false;  // the rank's exit was not known before
    bool signal = false;   // a signal from outside that was not told before
    bool exit = false;     // the rank has exited, and the exit is held
  };
  News hear(core::RankNumber rank, const TaskReport& report, core::Millis now);
  /// Takes a report from a status file as hear() does, but the rank is not heard by that.
  News read(core::RankNumber rank, const TaskReport& report, core::Millis now);
  /// A rank says that it is about to leave with an error.
  void failing(core::RankNumber rank);

  /// Slurm did not cause the exit of this rank, of all that have exited, of those that exited before `asked_at`.
  void clear(core::RankNumber rank) { ranks_[rank].cleared = true; }
  void clear_all() { clear_before(core::Millis::max()); }
  void clear_before(core::Millis asked_at) {
    for (auto& rank : ranks_) rank.cleared = rank.cleared || (rank.exited_at && *rank.exited_at < asked_at);
  }
  /// The exits that Slurm may have caused, held for `most` and longer. They are cleared. Returns whether one of the
  /// ranks had been told to leave.
  bool clear_held_for(core::Millis most, core::Millis now, std::optional<core::Millis> asked_at = std::nullopt);
  /// Ranks without a word of their end count as killed with their task.
  void end_the_silent(core::Millis now);

  /// Takes the held exits out, as facts: all of them, or those that nothing still to come can explain better.
  /// `most`: exits that Slurm surely did not cause are held this long at most; nullopt: as long as it takes.
  std::vector<core::EventBody> take_held(core::AttemptNumber attempt) {
    return take(attempt, [](core::RankNumber) { return true; });
  }
  std::vector<core::EventBody> take_settled(core::AttemptNumber attempt, std::optional<core::Millis> most,
                                            core::Millis now);

  template <typename Is>
  bool any(Is&& is) const {
    return std::ranges::any_of(ranks_, is);
  }
  bool all_told() const {
    return !any([](const Rank& rank) { return !rank.told; });
  }
  bool any_exited() const {
    return any([](const Rank& rank) { return rank.exited_at.has_value(); });
  }
  /// A rank has begun if its task has spoken, or has left a status file.
  bool any_begun() const {
    return any([](const Rank& rank) { return rank.report.has_value(); });
  }
  bool all_begun() const {
    return !any([](const Rank& rank) { return !rank.report; });
  }
  bool never_heard() const {
    return !any([](const Rank& rank) { return rank.heard_at || rank.exited_at; });
  }
  /// Slurm may have caused some exit that is held.
  bool waits_for_slurm() const {
    return any([](const Rank& rank) { return rank.is_held() && !rank.cleared; });
  }
  /// Some rank that has exited had got a SIGTERM from outside.
  bool was_told_to_leave() const;

  /// A word that a task sent before the task died may be read this much later.
  static constexpr core::Millis kLateWord{300};
  /// The clocks of nodes cannot be compared if words take so much longer from one node than from another, by them.
  static constexpr core::Millis kClocksAgree{1000};

 private:
  bool is_settled(core::RankNumber rank) const;
  std::vector<core::EventBody> take(core::AttemptNumber attempt,
                                    const std::function<bool(core::RankNumber)>& may_be_told);
  std::function<core::Millis(const Rank&)> order_of(const std::vector<core::RankNumber>& ranks) const;

  std::vector<Rank> ranks_;
  int failing_ = 0;
};

bool has_signal(const TaskReport& report, int number);

/// Facts that are known about an attempt when following begins.
struct Followed {
  core::AttemptKey key;
  std::uint32_t world_size = 1;
  std::uint32_t ranks_per_node = 1;
  bool started = false;   // the start is in the history already
  bool draining = false;  // and so is why the attempt ends
  core::Millis stop_grace{30'000};
};

/// One attempt on Slurm: draws conclusions from what Slurm lists, what the tasks beside the ranks say, and what their
/// status files say. The states are above, with their diagram. Pure: no thread, no clock, no I/O; times are
/// passed in. tests/golden/slurm_attempt_states.txt shows what each state makes of each observation.
///
/// - A listing moves the attempt to another state. explain() says why the attempt ends.
/// - An exit that may be Slurm's doing (code 99, SIGTERM, SIGKILL) is held until a listing that was asked for after the
///   exit has said why: preempted, requeued, timed out, cancelled, node down, or nothing of the kind. The cause is
///   Slurm's word and never a guess. While Slurm can't be reached this takes minutes. Nothing is lost by that: Slurm
///   would start nothing anyway. A rank that was told to leave and whose exit is never explained counts as preempted,
///   whatever its exit code: the rank was not done.
/// - A failure is held until every other rank has been heard after it. Where one rank was lost, the others fail a
///   moment later, and often tell it first. The rank that is told first is blamed: [Note: who failed first].
/// - Listings forget: a preempted job waits again and PreemptTime is gone, or the job is not listed at all. The attempt
///   then waits a moment for accounting before it tells a requeue or a loss. It also waits before it tells a cancel,
///   because listings do not say who cancelled.
/// - Slurm may end the job sooner than the job file says: at the partition's limit, or at a limit that somebody has
///   changed. The ranks are told to save before that limit, too.
/// - A run that Slurm starts again is not the attempt's. The attempt is over, and the Slurm job is to be cancelled.
class SlurmAttempt {
 public:
  SlurmAttempt(Followed what, core::Millis now);

  /// A poll has an answer about the job.
  void observe(const Observation& seen);
  /// The task beside a rank has spoken. False: it has said the same again.
  bool task(core::RankNumber rank, const TaskReport& report, core::Millis now);
  /// A rank has said that it is about to leave with an error.
  void failing(core::RankNumber rank) { ranks_.failing(rank); }
  /// Takes what a rank's status file says; nullptr: there is no file.
  void file(core::RankNumber rank, const TaskReport* report, core::Millis now);
  /// All status files have been read, from `since` on.
  void files_read(core::Millis since) { files_read_ = since; }
  /// Accounting's record of this attempt's run, once the run has ended; nullptr: there is no accounting.
  void remembered(const ::slurm::PastRun* run, core::Millis now);
  /// The script's log says that the run which ended was a second run, which left at once. Slurm does not know that.
  void was_second_run() { second_run_left_ = true; }
  void stop(const StopRequest& how, core::Millis now);
  /// Nobody could be heard until now: silence counts from here on.
  void was_deaf(core::Millis now) { deaf_until_ = now; }
  /// All that tasks sent before `until` has been read. No task is missed before it is unheard for `missed_after`.
  void tasks_read(core::Millis until, core::Millis missed_after) {
    read_until_ = until;
    missed_after_ = missed_after;
  }
  /// Time passes.
  void tick(core::Millis now);

  /// Facts that have been learned since the last call, in order.
  std::vector<core::EventBody> take_facts() { return std::exchange(facts_, {}); }

  /// The next listing should not wait for its turn.
  bool wants_listing() const { return wants_listing_; }
  /// Nothing is to be learned from listings soon: the attempt waits in Slurm's queue, or all its tasks are heard, which
  /// tell what happens.
  bool is_at_rest(core::Millis now) const;
  /// Accounting is to be asked.
  bool wants_history() const { return !accounting_answered_ && asked_accounting_at(); }
  /// Slurm starts the run again, and no listing said why.
  bool wants_cause_of_restart() const { return wants_history() && is<Requeued>(); }
  /// Status files of ranks that have not told their end are to be read.
  bool wants_files(core::Millis now) const;
  /// True if the script's log is to be read: the log may say why no rank was started.
  bool wants_script_word() const {
    const auto* ended = std::get_if<Ended>(&side_);
    return ended != nullptr && ended->why.is_success && !ended_at_ && !ranks_.any_begun();
  }
  /// The Slurm job is to be cancelled now. True again and again until Slurm calls the job ended.
  bool wants_cancel(core::Millis now) const;
  void cancel_sent(core::Millis now) { cancel_sent_at_ = now; }
  /// Nothing is left of the attempt, neither here nor in Slurm.
  bool over() const { return ended_at_ && in_slurm_ == InSlurm::kNothing; }
  /// The core knows the end.
  bool ended() const { return ended_at_.has_value(); }

  const SlurmSide& side() const { return side_; }
  /// A listing that was asked for before following began says nothing of the attempt.
  core::Millis since() const { return since_; }
  /// A listing asked for at `asked_at` must show the job: the number was known before, and Slurm has not told the end.
  bool must_be_listed(core::Millis asked_at) const {
    return asked_at >= since_ && in_slurm_ != InSlurm::kNothing && !is<Ended>() && !is<Cancelled>();
  }
  /// A listing asked for at `asked_at` must not show the first run as waiting: the run had started before.
  bool had_started(core::Millis asked_at) const {
    return begun_by_ && *begun_by_ < asked_at && !is<Ended>() && in_slurm_ != InSlurm::kSecondRun && !ended_at_;
  }
  /// The task beside one of the ranks is heard.
  bool is_heard(core::Millis now) const;
  /// The node of a rank whose task is not heard, though it should be; empty: the task is heard, or the node is not
  /// known.
  std::string node_of_missed(core::RankNumber rank, core::Millis now) const;
  /// The task beside some rank on this node is heard.
  bool hears_on(const std::string& node, core::Millis now) const;
  bool suspended() const {
    const auto listed = newest_listed(side_);
    return listed && std::holds_alternative<Suspended>(*listed) && !ended_at_;
  }
  /// No task has spoken, and none has left a word.
  bool never_heard() const { return ranks_.never_heard(); }
  /// How long the attempt is known to run without a word of any task; nullopt: it does not run, or one was heard.
  std::optional<core::Millis> unheard_for(core::Millis now) const {
    if (!begun_by_ || ended_at_ || is<Ended>() || !never_heard()) return std::nullopt;
    return now - std::max(*begun_by_, since_);
  }

  Vouch vouch(core::RankNumber rank, core::Millis now) const;
  /// The task was heard, and is not any more: before its node is called lost, its status file is to be read.
  bool has_fallen_silent(core::RankNumber rank, core::Millis now) const;
  std::uint32_t world_size() const { return what_.world_size; }

  /// A task not heard for this long can't vouch, see patience().
  static constexpr core::Millis kHeardWithin{1500};
  /// A rank whose task is not heard for this long while the attempt is being stopped is given up.
  static constexpr core::Millis kLostAfter{3000};
  /// How long an exit waits at most for other ranks to be heard, or where a listing answers and does not say why.
  static constexpr core::Millis kHoldMost{5000};
  /// The longest wait while Slurm ends the job (COMPLETING) and has not said why. Other ranks may take all of KillWait.
  static constexpr core::Millis kHoldWhileEnding{60000};
  /// How long an exit that may be Slurm's doing waits for a listing that answers. Longer than a slurmctld takes to be
  /// replaced.
  static constexpr core::Millis kHoldUnanswered{std::chrono::minutes(10)};
  /// Between Slurm's "ended" and giving up on ranks that never told their end; longer until their files are read.
  static constexpr core::Millis kFilePatience{2000};
  static constexpr core::Millis kCancelAgain{5000};
  /// The batch script's teardown may take this long after the last rank.
  static constexpr core::Millis kTeardownMost{60000};
  /// A job that Slurm does not list any more is given up after this many listings and this time.
  static constexpr int kMissingListings = 3;
  static constexpr core::Millis kMissingFor{5000};
  /// Ranks of a job that Slurm has resumed may take this long to be heard again.
  static constexpr core::Millis kWakesWithin{5000};
  /// Accounting may learn of an end a little later than a listing shows it.
  static constexpr core::Millis kHistoryPatience{5000};

 private:
  /// The run that Slurm still has of the job: this attempt's run, a second run that is to be cancelled, or nothing.
  enum class InSlurm { kRun, kSecondRun, kNothing };

  template <typename State>
  bool is() const {
    return std::holds_alternative<State>(side_);
  }
  void listed(const Observation& seen);
  void missing(const Observation& seen);
  void run_again(const Verdict& why, ::slurm::JobPhase phase, const Observation& seen);
  void conclude(const Verdict& why, core::Millis now);
  void heard(core::RankNumber rank, RankExits::News news, core::Millis now);
  void tell_start(const std::string& node_list);
  void tell_nodes(core::Millis now);
  void tell_why(core::Cause cause, const std::string& reason, bool save);
  void tell_exits(std::vector<core::EventBody> exits);
  void settle(core::Millis now);
  void leave_unexplained(core::Millis asked_at, core::Millis now);
  void give_up(core::Cause cause, std::string reason, core::Millis now);
  void give_up_ended(core::Millis now);
  std::optional<core::Millis> asked_accounting_at() const;
  std::optional<core::Millis> ending_since() const;
  core::Millis hold_most() const { return ending_since() ? kHoldWhileEnding : kHoldMost; }
  bool was_begun() const { return begun_ || ranks_.any_begun(); }
  bool requeued_for_its_exit() const;
  bool outlived_its_end() const;
  bool recently_deaf(core::Millis now) const { return deaf_until_ && now - *deaf_until_ < patience(kLostAfter, now); }
  /// How long a task may be unheard: its word may be there unread, and it may have been asked to speak less often.
  core::Millis patience(core::Millis limit, core::Millis now) const {
    return std::max(limit, missed_after_) + (now - std::min(now, read_until_.value_or(now)));
  }

  const Followed what_;
  const core::Millis since_;
  SlurmSide side_;
  RankExits ranks_;
  InSlurm in_slurm_ = InSlurm::kRun;
  /// By rank: where its task says that it is. Until the task has spoken: where blocks would put the rank.
  std::vector<std::string> nodes_;
  std::optional<core::Millis> moved_since_;  // tasks have said otherwise, and that is not told yet
  // Facts that the core has been told.
  std::vector<core::EventBody> facts_;
  bool begun_;      // the run has begun, even if nobody saw it
  bool explained_;  // why the attempt ends
  std::optional<core::Millis> ended_at_;
  // Facts that Slurm has told, and forgets.
  std::optional<core::Millis> begun_by_;  // a listing asked for then showed the run begun, or a task was heard then
  std::optional<core::Millis> answered_;  // when the newest listing that answered was asked for
  bool preempted_ = false;
  bool accounting_answered_ = false;
  // Steps that are to be done, and those that have been.
  bool wants_listing_ = false;
  bool second_run_left_ = false;
  std::optional<core::Millis> stop_at_;  // the end of the grace of a stop
  std::optional<core::Millis> cancel_sent_at_, files_read_, deaf_until_;
  std::optional<core::Millis> read_until_;
  core::Millis missed_after_{0};
};

}  // namespace executors::on_slurm
