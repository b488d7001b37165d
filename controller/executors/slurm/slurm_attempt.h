#pragma once

#include <algorithm>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/executors/slurm/explain.h"
#include "controller/executors/slurm/rank_exits.h"

namespace executors::on_slurm {

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
/// status files say. The states are in explain.h, with their diagram. Pure: no thread, no clock, no I/O; times are
/// passed in. tests/golden/slurm_attempt_states.txt shows what each state makes of each observation.
///
/// - A listing moves the attempt to another state (explain.h). explain() says why the attempt ends.
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
  bool wants_script_word() const;
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
  bool must_be_listed(core::Millis asked_at) const;
  /// A listing asked for at `asked_at` must not show the first run as waiting: the run had started before.
  bool had_started(core::Millis asked_at) const;
  /// The task beside one of the ranks is heard.
  bool is_heard(core::Millis now) const;
  /// The node of a rank whose task is not heard, though it should be; empty: the task is heard, or the node is not
  /// known.
  std::string node_of_missed(core::RankNumber rank, core::Millis now) const;
  /// The task beside some rank on this node is heard.
  bool hears_on(const std::string& node, core::Millis now) const;
  bool suspended() const;
  /// No task has spoken, and none has left a word.
  bool never_heard() const { return ranks_.never_heard(); }
  /// How long the attempt is known to run without a word of any task; nullopt: it does not run, or one was heard.
  std::optional<core::Millis> unheard_for(core::Millis now) const;

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
