#pragma once

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "controller/common/clock.h"
#include "controller/core/job.h"
#include "controller/executors/slurm/launcher.h"
#include "controller/executors/slurm/node_check.h"
#include "controller/executors/slurm/slurm_attempt.h"
#include "slurm/scheduler.h"

namespace executors::on_slurm {

/// When Slurm is asked for the next listing. slurmctld holds its job lock while it makes one, so listings are few, and
/// fewer the longer one takes.
///
/// - Without an attempt: none, once a listing has shown that nothing is left of earlier ones
///   (AttemptTable::State::is_settled). Until then one in kIdleTimes intervals.
/// - At rest, where every attempt waits in Slurm's queue or has all its tasks heard: one in kRestTimes intervals. Tasks
///   tell what happens, and something that happens ends the rest.
/// - Else one an interval: an attempt was just handed over, or its tasks are not heard, or it ends.
/// - At once (kUrgent), where an end waits for Slurm's word or a stop for its number: kBurst times in a row, and then
///   one an interval like the others.
/// - Never sooner than kShare times what the last listing took, though after kLongest at the latest. While squeue fails
///   at once (kAtOnce) Slurm makes no listing, and nothing is to be spared.
///
/// Pure: times are passed in. For one thread.
class PollPace {
 public:
  enum class Need { kIdle, kRest, kUsual, kUrgent };

  static constexpr int kIdleTimes = 10;
  static constexpr int kRestTimes = 5;
  static constexpr int kBurst = 4;
  static constexpr int kShare = 20;
  static constexpr core::Millis kLongest{20'000};
  static constexpr core::Millis kAtOnce{1'000};

  /// `urgent`: between two listings of a burst.
  PollPace(core::Millis interval, core::Millis urgent) : interval_(interval), urgent_(urgent) {}

  bool is_due(core::Millis now, Need need) const {
    if (!begun_at_) return true;
    const auto passed = now - *begun_at_;
    const auto share = std::min(took_ * kShare, kLongest);
    if (passed < share) return false;
    switch (need) {
      case Need::kIdle:
        return passed >= interval_ * kIdleTimes;
      case Need::kRest:
        return passed >= interval_ * kRestTimes;
      case Need::kUrgent:
        if (passed >= urgent_ && credit(now) >= interval_) return true;
        [[fallthrough]];
      case Need::kUsual:
        break;
    }
    return passed >= interval_;
  }
  /// How long none is due without an attempt.
  core::Millis idle_for(core::Millis now) const {
    if (!begun_at_) return core::Millis(0);
    const auto pause = std::max(interval_ * kIdleTimes, std::min(took_ * kShare, kLongest));
    return std::max(*begun_at_ + pause - now, core::Millis(0));
  }
  /// A listing is asked for now. Each takes one interval of the time that has been saved up.
  void begin(core::Millis now) {
    credit_ = std::max(credit(now) - interval_, core::Millis(0));
    begun_at_ = now;
  }
  /// Slurm has answered.
  void answered(core::Millis now) { took_ = now - *begun_at_; }
  /// squeue has failed. One that gave up tells nothing of how long a listing takes.
  void failed(core::Millis now) {
    if (now - *begun_at_ < kAtOnce) took_ = core::Millis(0);
  }

 private:
  core::Millis credit(core::Millis now) const {
    return begun_at_ ? std::min(credit_ + (now - *begun_at_), interval_ * kBurst) : interval_ * kBurst;
  }

  const core::Millis interval_, urgent_;
  std::optional<core::Millis> begun_at_;
  core::Millis took_{0};
  core::Millis credit_{0};  // as it was when the last listing began
};

/// The difference between slurmctld's clock and this machine's. munge allows five minutes, and no save may come too
/// late because of them. Pure; times are passed in.
class SlurmClock {
 public:
  /// Slurm is to be asked for its time. It never told the time, or told it long ago, or this machine's clock was set.
  bool is_due(core::Time wall, core::Millis now) const {
    if (!ask_at_ || now >= *ask_at_) return true;
    const auto set_by = (wall - wall_) - (now - now_);
    return set_by >= kSet || set_by <= -kSet;
  }
  /// Slurm was asked between these two times of this machine. `said`: its answer, if it gave one.
  void asked(std::optional<::slurm::Time> said, core::Time before, core::Time after, core::Millis now) {
    const bool tells = said && after >= before && after - before <= kQuick;
    ask_at_ = now + (tells ? kFresh : kAskAgain);
    wall_ = after;
    now_ = now;
    if (!tells) return;
    // Slurm tells whole seconds. Its clock was somewhere in this second, and this machine's somewhere between the two.
    const core::Time first = *said, last = first + std::chrono::seconds(1);
    const bool may_be_the_same = first <= after && last >= before;
    ahead_ = may_be_the_same ? core::Millis(0) : ((first - after) + (last - before)) / 2;
  }

  /// By slurmctld's clock.
  core::Time theirs(core::Time ours) const { return ours + ahead_; }
  /// By this machine's clock.
  core::Time ours(core::Time theirs) const { return theirs - ahead_; }
  /// How far slurmctld's clock is ahead; less than 0: it is behind.
  core::Millis ahead() const { return ahead_; }

  static constexpr core::Millis kFresh{std::chrono::minutes(5)};
  /// The pause after Slurm did not tell its time.
  static constexpr core::Millis kAskAgain{30'000};
  /// An answer that took longer is too vague.
  static constexpr core::Millis kQuick{10'000};
  /// Smaller differences are no change of a clock.
  static constexpr core::Millis kSet{2000};

 private:
  core::Millis ahead_{0};
  std::optional<core::Millis> ask_at_;  // nullopt: Slurm was never asked
  core::Time wall_{};                   // when Slurm was asked
  core::Millis now_{0};
};

/// The identity of an attempt's job in Slurm. A number alone proves nothing: slurmctld gives numbers again that it
/// has lost. A comment alone proves nothing either: an admin may change it.
struct JobIdentity {
  ::slurm::JobId id;
  std::string comment;
  std::string work_folder;                   // the folder that its script was submitted with
  std::optional<::slurm::Time> submitted{};  // nullopt: Slurm has not told it yet

  /// The number fits, and so does the comment, the moment of submission or the folder.
  bool is(const ::slurm::ListedJob& job) const {
    if (job.id != id) return false;
    if (job.comment == comment || (submitted && job.submitted == submitted)) return true;
    return !work_folder.empty() && job.work_folder == work_folder;
  }
};

/// Tells whether a listing may be believed about one attempt.
///
/// A listing can contradict what is known for certain: it lacks a job whose number sbatch gave before the listing was
/// asked for, or it shows a job as waiting that was seen to run. Either the listing is old or incomplete (a cache,
/// a proxy, a standby slurmctld), or slurmctld has lost its state. The job is then asked for by number. An answer that
/// has the job proves the listing wrong. An answer that agrees with the listing confirms the loss. One answer is enough
/// for a job of which nobody is heard. A job whose tasks are heard needs two, kApart from each other.
///
/// All threads that ask for listings share the doubt. It holds only what asking has shown. Each listing is compared
/// anew with what is known.
///
/// Pure: times are passed in.
class JobDoubt {
 public:
  /// A listing contradicts what is known.
  void raise() { raised_ = true; }
  /// The newest listing contradicts nothing, or asking has shown that it was wrong.
  void settle() { *this = {}; }
  bool raised() const { return raised_; }
  /// Slurm is to be asked for the job by number now. The pause grows while the loss is confirmed again and again.
  bool wants_asking(core::Millis now) const { return raised_ && (!last_ || now - *last_ >= pause_); }
  /// When Slurm was last asked for the job; nullopt: never.
  std::optional<core::Millis> asked_at() const { return last_; }
  /// Slurm was asked for the job by number, and agrees with the listing.
  void confirm(core::Millis now) {
    if (!first_) first_ = now;
    confirmed_twice_ = now - *first_ >= kApart;
    if (confirmed_twice_) pause_ = std::min(2 * pause_, kLongestPause);
    last_ = now;
  }
  /// The listing may be believed. `heard`: tasks of the job are heard.
  bool is_believed(bool heard) const { return heard ? confirmed_twice_ : first_.has_value(); }

  static constexpr core::Millis kApart{3000};
  static constexpr core::Millis kLongestPause{60'000};

 private:
  bool raised_ = false, confirmed_twice_ = false;
  std::optional<core::Millis> first_, last_;
  core::Millis pause_{kApart};
};

/// One attempt that the executor follows: who it is in Slurm, and what is concluded of it.
struct Tracked {
  SlurmAttempt attempt;
  JobIdentity job;
  std::filesystem::path folder;
  std::filesystem::path log = {};  // Slurm's own, see slurm_log_of()
  core::Time submitted_after{}, submitted_before{};
  std::string exclude = {};                        // the nodes that the job file excludes
  std::vector<std::string> left_out = {};          // the nodes that the job does not get either while they are lost
  std::optional<::slurm::ListedJob> listed = {};   // in the newest listing, if the number is still this job's there
  std::vector<core::EventBody> told = {};          // facts to tell before those of `attempt`
  bool checked = false;                            // the word of its health check, or of its failed launch, is told
  std::optional<core::Millis> unlaunched_at = {};  // Slurm could not start the job, and is asked why since then
  std::string refused = {};                        // what Slurm refused last, and why
  std::optional<core::Time> suspended_since = {};  // as far as listings have told
  JobDoubt doubt = {};                             // whether the newest listing may be believed about the job
};

/// The attempts of the executor, which its threads share. Thread-safe.
class AttemptTable {
 public:
  struct State {
    std::map<core::AttemptKey, Tracked> attempts;
    std::set<core::AttemptKey> launching;           // Slurm is being asked for them
    std::map<core::AttemptKey, std::string> later;  // why they are not handed over yet
    bool urgent = false;                            // the next listing should not wait for its turn
    std::uint64_t begun = 0;                        // attempts that came, and launches
    std::optional<std::uint64_t> settled = {};      // `begun` when a listing showed nothing that is to be watched

    /// Nothing of this controller is in Slurm, or will be before somebody says so.
    bool is_idle() const { return attempts.empty() && launching.empty() && later.empty(); }
    /// A listing has shown that besides.
    bool is_settled() const { return is_idle() && settled == begun; }
  };

  /// `wake` is called, without the lock, after something that the threads should look at. Before any other call.
  void on_change(std::function<void()> wake) { wake_ = std::move(wake); }

  /// Takes in an attempt that was handed over as this job, at the latest at `handed_over`. `now`: monotonic.
  void follow(Followed what, const std::optional<core::SchedulerJob>& job, const std::filesystem::path& folder,
              const SubmissionRecord& record, core::Time handed_over, core::Millis now);

  /// Calls `use` with the state while it is locked.
  template <typename Use>
  auto locked(Use&& use) {
    std::lock_guard lock(mutex_);
    return use(state_);
  }
  template <typename Use>
  auto locked(Use&& use) const {
    std::lock_guard lock(mutex_);
    return use(state_);
  }
  /// Calls `use` with one attempt, if it is followed. A `use` that returns false has left nothing to look at.
  template <typename Use>
  void with(const core::AttemptKey& key, Use&& use) {
    const bool is_news = locked([&](State& state) {
      const auto place = state.attempts.find(key);
      if (place == state.attempts.end()) return false;
      bool used = true;
      if constexpr (std::is_void_v<std::invoke_result_t<Use, Tracked&>>) {
        use(place->second);
      } else {
        used = use(place->second);
      }
      state.urgent = state.urgent || place->second.attempt.wants_listing();
      return used;
    });
    if (is_news) wake();
  }
  /// The value that `use` makes of one attempt; `otherwise`: the attempt is not followed.
  template <typename T, typename Use>
  T of(const core::AttemptKey& key, T otherwise, Use&& use) const {
    std::lock_guard lock(mutex_);
    const auto place = state_.attempts.find(key);
    return place == state_.attempts.end() ? otherwise : use(place->second);
  }
  /// The values that `pick` finds in each attempt, without the attempts in which it finds nothing.
  template <typename Pick>
  auto pick(Pick&& pick) {
    std::vector<typename std::invoke_result_t<Pick, const core::AttemptKey&, Tracked&>::value_type> picked;
    std::lock_guard lock(mutex_);
    for (auto& [key, tracked] : state_.attempts) {
      if (auto found = pick(key, tracked)) picked.push_back(*std::move(found));
    }
    return picked;
  }
  /// The next listing should not wait for its turn.
  void hurry() {
    locked([](State& state) { state.urgent = true; });
    wake();
  }
  void wake() const {
    if (wake_) wake_();
  }

 private:
  mutable std::mutex mutex_;
  State state_;
  std::function<void()> wake_;
};

/// The jobs of one listing by their numbers. The jobs must outlive it.
class Listing {
 public:
  explicit Listing(const std::vector<::slurm::ListedJob>& jobs);
  bool has(const ::slurm::JobId& id) const { return by_id_.contains(id); }
  /// nullptr: the job is not listed, or its number is another job's now.
  const ::slurm::ListedJob* row_of(const JobIdentity& job) const;

 private:
  std::map<::slurm::JobId, const ::slurm::ListedJob*> by_id_;
};

/// Asks Slurm for listings, and tells false ones from true ones: see JobDoubt. Thread-safe.
class Listings {
 public:
  Listings(::slurm::Scheduler& scheduler, const common::Clock& clock, AttemptTable& table, std::string user)
      : scheduler_(scheduler), clock_(clock), table_(table), user_(std::move(user)) {}

  /// Slurm's list. Unreachable, if the list contradicts what is known for certain and Slurm, asked for single jobs,
  /// proves the list wrong.
  ::slurm::Answer<std::vector<::slurm::ListedJob>> ask(core::Millis asked_at);

  /// True if a listing with this `row` of the attempt (nullptr: none) contradicts what is known.
  static bool contradicts(const Tracked& tracked, const ::slurm::ListedJob* row, core::Millis asked_at);

 private:
  std::vector<std::uint64_t> doubtful(const Listing& listing, core::Millis asked_at);
  std::string what_is_wrong(const Listing& listing, core::Millis asked_at, std::uint64_t number,
                            const std::vector<::slurm::ListedJob>& found);

  ::slurm::Scheduler& scheduler_;
  const common::Clock& clock_;
  AttemptTable& table_;
  const std::string user_;
};

/// Asks Slurm about the attempts of the table, hands them what it says, and carries out what they want of Slurm.
///
/// One poll: silent nodes are asked, status files are read, squeue lists all jobs. Each attempt then gets its
/// Observation. Accounting is asked about ends that no listing tells. Jobs are cancelled. While Slurm can't be reached
/// a poll ends at the first call without an answer, and trouble() says why.
///
/// poll() belongs to one thread; the rest is thread-safe.
class Poller {
 public:
  Poller(::slurm::Scheduler& scheduler, const common::Clock& clock, AttemptTable& table, Listings& listings,
         const Launcher& launcher)
      : scheduler_(scheduler), clock_(clock), table_(table), listings_(listings), launcher_(launcher) {}

  /// Before the first poll.
  void set_history(std::function<bool(const core::AttemptKey&)> is_over) { is_over_ = std::move(is_over); }
  void set_lost_nodes(std::function<LostNodes()> lost) { lost_nodes_ = std::move(lost); }

  /// True: Slurm has answered with a listing that is to be believed.
  bool poll();
  /// When the newest one came (monotonic).
  core::Millis listed_at() const { return listed_at_; }
  /// The newest one shows jobs whose attempts are over.
  bool has_leftovers() const { return !left_since_.empty(); }

  std::optional<Trouble> trouble() const {
    std::lock_guard lock(mutex_);
    return trouble_;
  }
  SlurmClock slurm_clock() const {
    std::lock_guard lock(mutex_);
    return slurm_clock_;
  }
  /// Tells whether a node is there. Has the next poll ask the node if nothing is known.
  NodeCheck::Word word_of(const std::string& node, core::Millis now) {
    std::lock_guard lock(mutex_);
    return node_check_.word(node, now);
  }

 private:
  using Job = std::pair<const ::slurm::ListedJob*, core::AttemptKey>;

  void forget_cancelled();
  void read_files();
  void ask_clock();
  void take_listing(const Listing& listing, core::Millis asked_at);
  std::string cancel_wanted();
  void note(const std::string& why);
  void read_why_started_again();
  void ask_accounting(const Listing& listing);
  void cancel_leftovers(const std::vector<::slurm::ListedJob>& jobs);
  std::vector<Job> unfollowed(const std::vector<::slurm::ListedJob>& jobs);
  std::optional<core::AttemptKey> key_of(const ::slurm::ListedJob& job);
  void ask_nodes();
  void tell_unfit_nodes(const Listing& listing);
  void tell_nodes_without_launch(const Listing& listing);
  DownNodes down_nodes(const Listing& listing);
  std::string end_exclusions();

  ::slurm::Scheduler& scheduler_;
  const common::Clock& clock_;
  AttemptTable& table_;
  Listings& listings_;
  const Launcher& launcher_;
  std::function<bool(const core::AttemptKey&)> is_over_;
  std::function<LostNodes()> lost_nodes_;
  core::Millis listed_at_{0};
  std::map<::slurm::JobId, core::Millis> left_since_;  // jobs whose attempts are over
  /// The attempts of each array by its comment, read once while some of its elements wait or run.
  std::map<std::string, std::vector<core::AttemptKey>> sets_;
  mutable std::mutex mutex_;
  std::optional<Trouble> trouble_;
  SlurmClock slurm_clock_;
  NodeCheck node_check_;
};

}  // namespace executors::on_slurm
