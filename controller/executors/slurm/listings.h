#pragma once

#include <algorithm>
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
#include "controller/executors/slurm/slurm_attempt.h"

namespace executors::on_slurm {

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
    std::set<core::AttemptKey> launching;           // launch() is asking Slurm for them
    std::map<core::AttemptKey, std::string> later;  // why launch() has not handed them over yet
    bool urgent = false;                            // the next listing should not wait for its turn
  };

  /// `wake` is called, without the lock, after something that the threads should look at. Before any other call.
  void on_change(std::function<void()> wake) { wake_ = std::move(wake); }

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
  const std::vector<::slurm::ListedJob>& jobs() const { return jobs_; }
  bool has(const ::slurm::JobId& id) const { return by_id_.contains(id); }
  /// nullptr: the job is not listed, or its number is another job's now.
  const ::slurm::ListedJob* row_of(const JobIdentity& job) const;

 private:
  const std::vector<::slurm::ListedJob>& jobs_;
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

}  // namespace executors::on_slurm
