#pragma once

#include <deque>
#include <mutex>
#include <string>
#include <vector>

#include "actions/launches.h"
#include "base/loop.h"

namespace actions {

/// Carries out the store's outbox: StartAttempt when admission lets it, the others at once, but RemoveFiles (see
/// JobRemover). An action is completed only after what came of it is durable, so a crash anywhere means it is carried
/// out again, which does no harm: executors find what was launched before, and actions that the job has outlived are
/// skipped.
///
/// Threads: one that reads the outbox, kLaunchers that launch, so that one slow launch does not hold up the rest.
/// Without threads, poll() does it all.
class ActionRunner {
 public:
  static constexpr int kLaunchers = 4;

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
  std::deque<Batch> to_launch_;
  core::Millis rest_until_{0};  // monotonic; the outbox is not read before, whoever calls
  base::Loop outbox_loop_;
  std::deque<base::Loop> launchers_;
};

}  // namespace actions
