#pragma once

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "executors/executor.h"
#include "slurm/scheduler.h"

namespace runtime::on_slurm {

/// Nodes that Slurm calls down, each with the reason that it gives.
using DownNodes = std::map<std::string, std::string>;

/// What is known of an attempt when following begins.
struct Followed {
  core::AttemptKey key;
  std::uint32_t world_size = 1;
  std::uint32_t ranks_per_node = 1;
  bool started = false;   // its start is in the history already
  bool draining = false;  // and so is why it ends
  core::Millis stop_grace{30'000};
};

/// One attempt on Slurm: puts together what Slurm lists, what the tasks beside its ranks say, and what their status
/// files say, and draws the conclusions. Pure: no thread, no clock, no I/O; times are passed in.
///
/// An exit that may be Slurm's doing (code 99, SIGTERM, SIGKILL) is held until a listing asked for after it has said
/// why: preempted, requeued, timed out, cancelled, node down, or nothing of the kind. So the cause is Slurm's word and
/// never a guess. While Slurm can't be reached that takes minutes, and nothing is lost: it would start nothing anyway.
/// Who was told to leave and is never explained counts as preempted, whatever it left with: it was not done.
///
/// A failure is held until every other rank has been heard after it: where one was lost, the others fail a moment
/// later, and often tell it first. Which of several is told first, and so blamed: [Note: who failed first].
///
/// What happened while nobody listened may be told no more: a preempted job waits again and PreemptTime is gone, or the
/// job is not listed at all. Then accounting's word is waited for, a moment, before the end is called a requeue or the
/// job lost. So it is before a cancel is told: listings do not say whose it was.
///
/// Slurm may end it sooner than its job file says, or where that says nothing: at the partition's limit, or at one that
/// somebody has changed since. Before that limit, too, the ranks are told to save.
///
/// Of a suspended job nobody is heard, and it stays suspended until a listing shows otherwise, however long none
/// answers.
///
/// A run that Slurm starts again by itself is none of ours: the attempt is over and the Slurm job is to be cancelled.
/// Why it does: [Note: requeued for its exit code]. So it is with one that runs and is listed as waiting: slurmctld
/// died before it had written down that it started it. One that Slurm could not start on its nodes, and holds, is a
/// node's failure.
class AttemptFollower {
 public:
  AttemptFollower(Followed what, core::Millis now);

  /// The task beside a rank has spoken.
  void task(core::RankNumber rank, const TaskReport& report, core::Millis now);
  /// A rank has said that it is about to leave with an error.
  void failing(core::RankNumber rank);
  /// A listing that was asked for at `asked_at` shows it so, or not at all.
  /// `wall`: what `now` is by the clock that Slurm's times are of.
  void listed(const ::slurm::ListedJob* job, const DownNodes& down, core::Millis asked_at, core::Millis now,
              core::Time wall);
  /// What a rank's status file says; nullptr: there is none.
  void file(core::RankNumber rank, const TaskReport* report, core::Millis now);
  /// All of them have been read, from `since` on.
  void files_read(core::Millis since) { files_read_ = since; }
  /// Whether the script itself has said why no rank was started is worth a look into its log.
  bool wants_script_word() const;
  /// It has: it was a second run, of which Slurm does not know that it is one, and left at once.
  void was_second_run() { second_run_ = true; }
  /// What accounting says of this attempt's run, once that has ended; nullptr: there is no accounting.
  void remembered(const ::slurm::PastRun* run, core::Millis now);
  void stop(const StopRequest& how, core::Millis now);
  /// Nobody could be heard until now: silence counts from here on.
  void was_deaf(core::Millis now) { deaf_until_ = now; }
  /// Time passes.
  void tick(core::Millis now);

  /// What has been learned since the last call, in order.
  std::vector<core::EventBody> take_facts();

  /// The next listing should not wait for its turn.
  bool wants_listing() const { return wants_listing_; }
  /// Listings do not tell its end, or not who is behind it: accounting is to be asked.
  bool wants_history() const { return history_since_.has_value() && !history_told_; }
  /// Status files of ranks that have not told their end are to be read.
  bool wants_files(core::Millis now) const;
  /// The Slurm job is to be cancelled now. Asks again until Slurm calls it ended.
  bool wants_cancel(core::Millis now) const;
  void cancel_sent(core::Millis now) { cancel_sent_at_ = now; }
  /// Nothing of it is left, neither here nor in Slurm.
  bool over() const { return core_over_ && slurm_over_; }
  /// The core knows its end.
  bool ended() const { return core_over_; }

  /// A listing that was asked for before following began says nothing of it.
  core::Millis since() const { return since_; }
  /// A listing asked for at `asked_at` must show it: its number was known before, and Slurm has not told its end.
  bool must_be_listed(core::Millis asked_at) const {
    return asked_at >= since_ && !slurm_over_ && !ended_at_ && !by_whom_;
  }
  /// A listing asked for at `asked_at` must not show its first run as waiting: it had started before.
  bool had_started(core::Millis asked_at) const;
  /// The task beside one of its ranks is heard.
  bool is_heard(core::Millis now) const;
  /// The node of a rank whose task is not heard, though it should be; empty: its task is heard, or nobody knows where.
  std::string node_of_missed(core::RankNumber rank, core::Millis now) const;
  /// The task beside some rank on this node is heard.
  bool hears_on(const std::string& node, core::Millis now) const;
  bool suspended() const { return suspended_ && !core_over_; }
  /// No task has spoken, and none has left a word.
  bool never_heard() const;

  Vouch vouch(core::RankNumber rank, core::Millis now) const;
  /// Its task was heard, and is not any more: before its node is called lost, its status file is to be read.
  bool has_fallen_silent(core::RankNumber rank, core::Millis now) const;
  std::uint32_t world_size() const { return what_.world_size; }

  /// A task not heard for this long can't vouch.
  static constexpr core::Millis kHeardWithin{1500};
  /// A rank whose task is not heard for this long while the attempt is being stopped is given up.
  static constexpr core::Millis kLostAfter{3000};
  /// A word that a task sent before it died may be read so much later.
  static constexpr core::Millis kLateWord{300};
  /// Nodes whose words come so much sooner or later than others', by their clocks, have clocks that cannot be compared.
  static constexpr core::Millis kClocksAgree{1000};
  /// How long an exit waits at most for other ranks to be heard, or where a listing answers and does not say why.
  static constexpr core::Millis kHoldMost{5000};
  /// The same while Slurm ends the job (COMPLETING) without having said why; other ranks may take all of KillWait.
  static constexpr core::Millis kHoldWhileEnding{60000};
  /// How long one that may be Slurm's doing waits for a listing that answers. Longer than a slurmctld takes to be
  /// replaced.
  static constexpr core::Millis kHoldUnanswered{std::chrono::minutes(10)};
  /// Between Slurm's "ended" and giving up on ranks that never told their end; longer until their files are read.
  static constexpr core::Millis kFilePatience{2000};
  static constexpr core::Millis kCancelAgain{5000};
  /// The batch script's teardown may take this long after the last rank.
  static constexpr core::Millis kTeardownMost{60000};
  /// A job that Slurm does not list any more is given up after so many listings and so long.
  static constexpr int kMissingListings = 3;
  static constexpr core::Millis kMissingFor{5000};
  /// Ranks of a job that Slurm has let go on may take so long to be heard again.
  static constexpr core::Millis kWakesWithin{5000};
  /// Accounting may learn of an end a little later than a listing shows it.
  static constexpr core::Millis kHistoryPatience{5000};

 private:
  struct Rank {
    std::optional<TaskReport> report;
    std::optional<core::Millis> heard_at;
    std::optional<core::Millis> exited_at;          // its exit waits to be told since
    std::optional<core::Millis> asked_to_leave_at;  // its task told of a SIGTERM from outside
    std::optional<int> failing;                     // the how manieth it was to say that it leaves with an error
    bool from_file = false;                         // its end was read, long after
    bool cleared = false;                           // Slurm has nothing to do with it
    bool told = false;
  };

  void look_at(const ::slurm::ListedJob* job, const DownNodes& down, core::Millis asked_at, core::Millis now,
               core::Time wall);
  void explain(core::Cause cause, const std::string& reason, bool save = true);
  void tell_started(const ::slurm::ListedJob& job);
  void tell_nodes(core::Millis now);
  void look_at_suspension(::slurm::JobState state, core::Millis now);
  void look_at_limit(const ::slurm::ListedJob& job, core::Millis now, core::Time wall);
  void look_at_ending(const ::slurm::ListedJob& job);
  void look_at_end(const ::slurm::ListedJob& job, core::Millis now);
  void look_at_restart(const ::slurm::ListedJob& job, const DownNodes& down, core::Millis now);
  void restarted_unseen(core::Cause cause, const std::string& reason, core::Millis now);
  void left_by_itself(const std::string& job, const ::slurm::ExitStatus& exit, core::Millis now);
  void missing(core::Millis asked_at, core::Millis now);
  void ask_history(core::Millis now);
  std::string requeued_text() const;
  std::string node_failed_text() const;
  void slurm_ended(core::Cause cause, const std::string& reason, core::Millis now);
  void release_exits();
  void release_settled(core::Millis now);
  void leave_unexplained(core::Millis asked_at, core::Millis now);
  void give_up_explaining(Rank& rank);
  bool waits_for_slurm() const;
  bool is_settled(core::RankNumber rank) const;
  void tell_exits(std::vector<core::RankNumber> ranks);
  std::function<core::Millis(const Rank&)> order_of(const std::vector<core::RankNumber>& ranks) const;
  void tell_exit(core::RankNumber rank);
  void give_up(core::Millis now);
  bool outlived() const;
  bool recently_deaf(core::Millis now) const { return deaf_until_ && now - *deaf_until_ < kLostAfter; }
  void tell_ends_without_a_word(core::Millis now);
  bool all_told() const;
  bool every_rank_started() const;
  bool heard_within(const Rank& rank, core::Millis limit, core::Millis now) const;

  const Followed what_;
  const core::Millis since_;
  std::vector<Rank> ranks_;
  /// By rank: where its task says that it is; until that has spoken where it would be, if ranks came in blocks.
  std::vector<std::string> nodes_;
  std::optional<core::Millis> moved_since_;  // tasks have said otherwise, and that is not told yet
  std::vector<core::EventBody> facts_;
  bool started_ = false;
  std::optional<core::Millis> started_by_;  // a listing asked for then showed it started, or a task was heard then
  bool explained_ = false;                  // the core knows, or has been told, why it ends
  bool preempted_ = false;                  // Slurm said so once; it forgets
  bool core_over_ = false, slurm_over_ = false;
  bool leftover_ = false;                      // Slurm would run it again
  bool unseen_ = false;                        // Slurm started it again, and does not say why
  bool by_itself_ = false;                     // Slurm started it again because of its exit code
  bool ended_well_ = false;                    // as far as Slurm knows
  bool second_run_ = false;                    // what ended was a run that found the attempt begun
  std::optional<::slurm::ListedJob> by_whom_;  // cancelled, and who did it is being asked
  bool wants_listing_ = true;
  std::optional<core::Millis> answered_;      // when the newest listing that answered was asked for
  std::optional<core::Millis> ending_since_;  // as Slurm had it last
  std::optional<core::Millis> save_at_;       // as long before Slurm's limit as a save may take
  core::Millis limit_{0};                     // that one
  bool suspended_ = false;                    // in the newest listing that shows it
  std::optional<core::Millis> deaf_until_;
  std::optional<core::Millis> woken_at_;  // and then it was not any more
  std::optional<StopRequest> stop_;
  core::Millis stop_at_{0};
  std::optional<core::Millis> cancel_sent_at_, ended_at_, missing_since_, core_over_at_, history_since_, files_read_;
  bool history_told_ = false;  // or there is none
  int missing_listings_ = 0, failing_ = 0;
  core::Cause end_cause_ = core::Cause::kControllerLost;
  std::string end_reason_;
};

/// What Slurm's final state means; nullopt where the ranks' own exits tell (COMPLETED, FAILED).
std::optional<core::Cause> cause_of(::slurm::JobState state);

}  // namespace runtime::on_slurm
