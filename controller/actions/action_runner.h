#pragma once

#include <algorithm>
#include <cstddef>
#include <deque>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/actions/launches.h"
#include "controller/common/loop.h"

namespace actions {

/// Work to be carried out, user by user. The users take turns, so a job of one user waits for at most one piece
/// of work of each other user, however much these have. What one user wants is carried out in the order in which it
/// came.
///
/// A long piece, an array of a thousand jobs, takes its turn like any other. At most `most_long` long pieces are out at
/// once, so that short ones always find somebody who is free.
///
/// Not thread-safe.
template <typename Work>
class Turns {
 public:
  explicit Turns(std::size_t most_long) : most_long_(most_long) {}

  void push(const std::string& user, bool is_long, Work work) {
    auto& queue = waiting_[user];
    if (queue.empty()) order_.push_back(user);
    queue.push_back({is_long, std::move(work)});
  }
  /// The work whose turn it is, and whether it is long; nullopt: none may be begun now. Of what is long, ended() is
  /// told.
  struct Taken {
    bool is_long = false;
    Work work;
  };
  std::optional<Taken> take() {
    const auto may_go = [&](const std::string& user) {
      return !waiting_.at(user).front().is_long || long_out_ < most_long_;
    };
    const auto next = std::ranges::find_if(order_, may_go);
    if (next == order_.end()) return std::nullopt;
    const auto user = *next;
    auto& queue = waiting_.at(user);
    auto taken = std::move(queue.front());
    queue.pop_front();
    order_.erase(next);
    if (queue.empty()) {
      waiting_.erase(user);
    } else {
      order_.push_back(user);
    }
    if (taken.is_long) ++long_out_;
    return taken;
  }
  /// A long piece that take() gave out is done.
  void ended() { --long_out_; }
  void clear() {
    waiting_.clear();
    order_.clear();
  }

 private:
  const std::size_t most_long_;
  std::size_t long_out_ = 0;
  std::map<std::string, std::deque<Taken>> waiting_;  // no queue is empty
  std::deque<std::string> order_;                     // the users of `waiting_`, the next one first
};

/// Carries out the store's outbox: StartAttempt when admission lets it, the others at once, but RemoveFiles (see
/// JobRemover). An action is completed only after what came of it is durable, so a crash anywhere means it is carried
/// out again, which does no harm: executors find what was launched before, and actions that the job has outlived are
/// skipped.
///
/// Users take turns (Turns): a job of one user waits for one launch of each other user at most, and for the holds of
/// kOthersFor. What one user wants is carried out in the order of its age.
///
/// Threads: one that reads the outbox, kLaunchers that launch, so that one slow launch does not hold up the rest. Each
/// sleeps until it has something to do: the outbox has news, time makes a row ready, or reconsider() is called.
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
  /// Admission may say something else by now: a job has ended, a policy or the machine has changed. Cheap while nothing
  /// waits.
  void reconsider();
  /// Carries out what is due, in this thread. Returns how long nothing is due then; nullopt: until wake() or
  /// reconsider(). Only without threads.
  std::optional<core::Millis> poll();
  void leave_out_lost_nodes(std::vector<executors::LaunchRequest>& requests) const {
    launches_.leave_out_lost_nodes(requests);
  }
  /// So many attempts of a sweep are launched together at most.
  static constexpr std::size_t kLargestBatch = 1000;
  executors::LostNodes nodes_lost_lately() const { return launches_.nodes_lost_lately(); }
  /// Starts nothing more.
  void stop_taking();
  /// Starts nothing more, and waits for launches under way.
  void close();

 private:
  using Row = Outbox::Row;
  /// Actions carried out together: first attempts of one sweep, stops, or one action of any kind.
  using Batch = std::vector<Row>;

  /// Takes over what an earlier run of the controller began: who has slots, and who gave them back.
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
  void wake_launchers() {
    for (auto& launcher : launchers_) launcher.wake();
  }
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
  /// Rows wait for admission's word, or are just being judged: reconsider() wakes.
  bool some_wait_ = false;
  Turns<Batch> to_launch_{kLaunchers - 1};
  // State of the thread that reads the outbox: how long it carried out actions itself, whether some are left for later.
  core::Millis others_took_{0};
  bool others_left_ = false;
  core::Millis rest_until_{0};  // monotonic; the outbox is not read before, whoever calls
  core::Millis look_again_{0};  // monotonic; without news in the outbox nobody is judged before
  common::Loop outbox_loop_;
  std::deque<common::Loop> launchers_;
};

}  // namespace actions
