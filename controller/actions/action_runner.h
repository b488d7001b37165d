#pragma once

#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "controller/actions/launches.h"
#include "controller/actions/turns.h"
#include "controller/common/loop.h"

namespace actions {

/// Carries out the store's outbox: StartAttempt when admission lets it, the others at once, but RemoveFiles (see
/// JobRemover). An action is completed only after what came of it is durable, so a crash anywhere means it is carried
/// out again, which does no harm: executors find what was launched before, and actions that the job has outlived are
/// skipped.
///
/// Users take turns (Turns): a job of one user waits for one launch of each other user at most, and for the holds of
/// kOthersFor. What one user wants is carried out in the order of its age.
///
/// Threads: one that reads the outbox, kLaunchers that launch, so that one slow launch does not hold up the rest.
/// Without threads, poll() does it all.
class ActionRunner {
 public:
  static constexpr int kLaunchers = 4;
  /// So long are holds, releases and limits carried out before the outbox is looked at again. Each is a call of the
  /// scheduler.
  static constexpr core::Millis kOthersFor{500};

  using Parts = Launches::Parts;
  ActionRunner(Parts parts, bool threads);
  ~ActionRunner() { close(); }
  ActionRunner(const ActionRunner&) = delete;
  ActionRunner& operator=(const ActionRunner&) = delete;

  /// Throws store::Error.
  void start(LaunchSettings settings);
  /// The outbox has something new.
  void wake();
  /// Carries out what is due, in this thread. Only without threads.
  void poll();
  void leave_out_lost_nodes(std::vector<executors::LaunchRequest>& requests) const {
    launches_.leave_out_lost_nodes(requests);
  }
  /// So many attempts of a sweep are launched together at most.
  static constexpr std::size_t kLargestBatch = 1000;
  executors::LostNodes nodes_lost_lately() const { return launches_.nodes_lost_lately(); }
  /// Starts nothing more.
  void stop_taking();
  /// The same, and waits for launches under way.
  void close();

 private:
  using Row = Outbox::Row;
  /// Actions carried out together: first attempts of one sweep, stops, or one action of any kind.
  using Batch = std::vector<Row>;

  /// What an earlier run of the controller began: who has slots, and who gave them back.
  void take_over();
  /// Steps of the loops: each returns the pause before the next one.
  std::optional<core::Millis> look();
  std::optional<core::Millis> launch_next();
  void read_outbox();
  core::Millis backoff_left(const Row& row) const;
  std::vector<Batch> take_due();
  std::string user_of(const Batch& batch) const;
  void hand_on(Batch batch);
  void perform_others(std::vector<Batch> batches);
  /// Which other actions it may be carried out with, by name (empty: it goes alone); nullopt: it must wait.
  std::optional<std::string> judge(const Row& row);
  std::optional<std::string> judge_start(const Row& row, const core::Job& job);
  void perform(const Batch& batch);
  bool perform(const Row& row);
  bool stop_attempt(core::JobId id, const core::StopAttempt& action);
  bool limit_attempt(core::JobId id, const core::LimitAttempt& action);
  bool hold_attempt(const Row& row);
  /// The slots that a release took, where the queue was not asked for it.
  void give_back(const core::Job& job);

  Parts parts_;
  const bool threads_;
  Outbox outbox_;
  Launches launches_;

  std::mutex mutex_;
  bool closed_ = false;
  bool stale_ = true;  // the outbox must be read again
  Turns<Batch> to_launch_{kLaunchers - 1};
  // Of the thread that reads the outbox: how long it carried out actions itself, and whether some are left for later.
  core::Millis others_took_{0};
  bool others_left_ = false;
  core::Millis rest_until_{0};  // monotonic; the outbox is not read before, whoever calls
  common::Loop outbox_loop_;
  std::deque<common::Loop> launchers_;
};

}  // namespace actions
