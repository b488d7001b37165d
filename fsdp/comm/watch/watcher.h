#pragma once
#include <c10/util/Exception.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <utility>
#include <vector>

#include "fsdp/comm/watch/calls.h"
#include "fsdp/comm/watch/hub.h"
#include "fsdp/text/json.h"

namespace fsdp::watch {

/// Says for whom a call waits, on a thread of its own: after `late_after`, and again each time after twice the time,
/// until it is destroyed.
class LateWord {
 public:
  /// `say` gets "rank 0 has not come for 10 s: <what>".
  LateWord(std::chrono::milliseconds late_after, std::function<void(const std::string&)> say, std::string whom,
           std::string what)
      : thread_([this, late_after, say = std::move(say), whom = std::move(whom), what = std::move(what)] {
          std::unique_lock<std::mutex> lock(mutex_);
          for (auto waited = late_after; !changed_.wait_for(lock, waited, [this] { return ends_; }); waited *= 2) {
            waited_ += waited;
            say(whom + " has not come for " + std::to_string(waited_.count() / 1000) + " s: " + what);
          }
        }) {}
  ~LateWord() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  LateWord(const LateWord&) = delete;
  LateWord& operator=(const LateWord&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::chrono::milliseconds waited_{};
  std::thread thread_;  // last, because it uses the others
};

/// A communicator, as the watcher knows it.
struct Watched {
  std::string group;       // equal on its ranks, such as "shard 0"
  std::vector<int> ranks;  // of the mesh, in the order of the group
  /// The host stands in a collective until it has ended. False where only the device waits, as with NCCL.
  bool host_waits = true;
  /// Ends all waits for the group's collectives, now and later. Called on the watcher's thread.
  std::function<void(const std::string& why)> abort;
};

struct WatchOptions {
  std::chrono::milliseconds patience{500};
  std::chrono::milliseconds late_after{10'000};
  std::function<void(const std::string&)> on_late;  // null: standard error
  std::chrono::milliseconds timeout{600'000};       // of the connection at the start
  std::string interface_address;
};

/// Finds out why a collective does not end.
///
/// [Note: watcher] Each rank has a thread with a connection to rank 0's. The thread looks a few times a second whether
/// the rank has stood in one collective for longer than `patience`. Then it asks, through rank 0, what the group's
/// ranks have called. There are three answers.
/// Another call: a rank made another call under the same number, and no such collective can end. All ranks abort all
/// collectives, with an error that names both calls.
/// Gone: a rank's process has ended, or its mesh was destroyed before the call, so its connection is closed. All ranks
/// abort.
/// Late: a rank has not come yet. It may compute or write a file, so this is no error. After `late_after`, and again
/// after twice the time, the ranks that wait say so in their log.
/// Where nothing is heard nothing is concluded: a process that is stopped, or a node without power, is told as late.
///
/// [Note: meeting] A mesh makes its watcher first, before any rank waits for another one. Rank 0 calls the roll: ranks
/// that have not come are named in the logs of all that have, after `late_after`, and again after twice the time. A
/// rank whose process ends before the mesh stands closes its connection to rank 0. Then the constructors of all meshes
/// throw, with its name: rank 0 in the roll, the others where they wait for keys and connections (MeetingStore).
///
/// Thread-safe.
class Watcher {
 public:
  /// Collective. `store` has keys for this watcher alone. Rank 0 waits until all have come; the others wait for rank 0.
  /// Throws c10::Error that names the ranks when some have not come in time, or have come and are gone.
  Watcher(c10d::Store& store, int rank, int world_size, WatchOptions options);
  /// Says goodbye, so that the others don't take this rank for dead.
  ~Watcher();
  Watcher(const Watcher&) = delete;
  Watcher& operator=(const Watcher&) = delete;

  /// Watches `calls` until forget(). All ranks of the group make the same communicators in the same order.
  void watch(std::shared_ptr<Calls> calls, Watched watched);
  void forget(const Calls& calls);

  /// While ranks meet: throws c10::Error naming a rank whose process has ended, or that has given up its mesh. With
  /// `patience` it waits for that long, for the case that the news are on their way.
  void check_all_here(std::chrono::milliseconds patience = {}) const;

  /// True if there is a verdict: each collective fails from now on. Costs one load.
  bool has_failed() const { return failed_.load(std::memory_order_acquire); }
  /// Empty: none.
  std::string verdict() const;
  /// Why a collective of `calls` failed: the verdict, or what is known of late ranks. Waits for it for some seconds'
  /// fraction: two times the patience. Empty: not known.
  std::string explain(const Calls& calls);
  /// "process 12 on node-3": this one.
  static std::string who_am_i();

 private:
  using Clock = std::chrono::steady_clock;
  struct Entry {
    std::shared_ptr<Calls> calls;
    Watched watched;
    std::uint64_t seen = 0;  // the stay, or the number of calls, that was looked at last
    Clock::time_point since, next_question, next_word;
    std::chrono::milliseconds gap{};
    std::string late;
  };
  struct Gone {
    std::string why;
    std::optional<std::map<std::string, std::uint64_t, std::less<>>> made;  // by group, where the rank said goodbye
  };
  struct Guest {
    Line line;
    int rank = -1;    // unknown until its first line
    std::string who;  // "process 12 on node-3"
  };

  void meet(c10d::Store& store);
  void await_all();
  std::vector<int> missing() const;
  void call_the_roll();
  void note_gone(int rank, Gone gone);
  void run();
  void sleep();
  void hear();
  void hear_hub();
  void hear_guests();
  void hear_guest(Guest& guest, const std::string& text);
  void deliver();
  void look();
  std::string look_at(Entry& entry, bool failing);
  void heard(const Json& message);
  Json answer(const std::string& group);
  std::string absent_in(const Entry& entry) const;
  void say(const std::string& text) const;
  void decide(const std::string& verdict);
  void fail(const std::string& verdict);
  void tell_hub(const Json& message);
  void tell_rank(int rank, const Json& message);
  void say_goodbye();
  void wake();

  const int rank_, world_size_;
  const WatchOptions options_;
  const Clock::duration tick_;

  mutable std::mutex mutex_;  // of what follows
  mutable std::condition_variable changed_;
  std::string verdict_;
  std::map<const Calls*, int> failing_;  // how many threads wait in explain()
  std::map<const Calls*, std::string> late_;
  bool ends_ = false;
  std::set<int> here_;  // ranks that have come to rank 0, on rank 0 alone
  std::string absent_;  // the first rank that is gone, and why
  std::atomic<bool> failed_{false};

  std::mutex entries_mutex_;  // held while collectives are aborted, so that none is destroyed meanwhile
  std::list<Entry> entries_;
  std::map<std::string, std::uint64_t, std::less<>> forgotten_;  // calls made in groups that are not watched any more

  // Members of the watcher's thread.
  Clock::time_point now_, began_, next_roll_;
  std::map<int, Gone> gone_;
  std::optional<Line> to_hub_;  // not on rank 0
  std::string who_hub_;
  base::Fd listening_;  // rank 0 only, as the rest
  std::string secret_;
  std::list<Guest> guests_;
  std::optional<Hub> hub_;
  std::vector<Json> from_here_, to_here_;  // messages between rank 0's own watcher and its hub

  base::Fd wake_fd_;
  std::thread thread_;
};

/// The store that a mesh's transports meet at. A wait for a key ends when a rank is gone, because that rank may be the
/// one that would write the key: see [Note: meeting]. A wait asks again and again, because a TCPStore serves one call
/// at a time, and other threads of this rank may have the keys that its peers wait for. Thread-safe as the store below
/// it.
class MeetingStore : public c10d::PrefixStore {
 public:
  /// `watcher` may be gone later: then waits are those of `store`. `given_up` ends waits once it is true; null: nothing
  /// does.
  MeetingStore(std::string prefix, c10::intrusive_ptr<c10d::Store> store, std::weak_ptr<Watcher> watcher,
               std::shared_ptr<const std::atomic<bool>> given_up = nullptr)
      : PrefixStore(std::move(prefix), std::move(store)),
        watcher_(std::move(watcher)),
        given_up_(std::move(given_up)) {}

  std::vector<std::uint8_t> get(const std::string& key) override {
    wait({key}, getTimeout());
    return PrefixStore::get(key);
  }
  void wait(const std::vector<std::string>& keys) override { wait(keys, getTimeout()); }
  void wait(const std::vector<std::string>& keys, const std::chrono::milliseconds& timeout) override;

  /// Throws c10::Error naming a rank that is gone.
  void check_all_here() const {
    if (const auto watcher = watcher_.lock()) watcher->check_all_here();
    TORCH_CHECK(!given_up_ || !given_up_->load(), "another communicator of the mesh has failed");
  }

 private:
  std::weak_ptr<Watcher> watcher_;
  std::shared_ptr<const std::atomic<bool>> given_up_;
};

}  // namespace fsdp::watch
