#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"

namespace c10d {
class Store;
}

namespace fsdp {

/// Ranks that a PeerSockets joins to this one.
struct PeerGroup {
  int rank = 0;
  int world_size = 1;
  std::string address;  ///< peers connect to it: a name or address of this machine
  std::chrono::milliseconds timeout{};
  /// Asked a few times a second while the constructor waits for peers. Throws where one cannot come any more. Null:
  /// only the timeout ends such a wait.
  std::function<void()> check_peers = {};
  /// The ranks that this one has a connection to. Each of them names this rank, too. Empty: all.
  std::vector<int> peers = {};
};

/// Connections between the ranks of a group, and messages in order over each.
///
/// [Note: own sockets] A send and a receive of Gloo first tell each other that they are ready. So one message needs
/// three, and wakes two threads. Besides, Gloo's thread asks the kernel again and again while the caller holds the
/// mutex of a connection (handleEvents() in gloo/transport/tcp/pair.cc only tries to lock it). With fewer free cores
/// than threads, that took three quarters of the processor time of steps with small units. Here a message is a header
/// and its bytes. The group's thread sleeps in poll() until a socket can go on. The caller itself writes a short
/// message.
///
/// A rank posts its receives from a peer in the order of that peer's sends. A message for which no receive is posted
/// waits in the kernel, and so do those behind it. Once the socket's buffers are full, its sender waits too.
/// Thread-safe.
class PeerSockets {
 public:
  /// Called once on the group's thread, which holds no lock: with an empty text once the message has arrived, otherwise
  /// with the error of the connection. Throws nothing.
  using Then = std::function<void(const std::string& error)>;

  /// Collective. `store` has keys for this group alone. Throws c10::Error when a peer does not come within the timeout,
  /// and what `check_peers` throws.
  PeerSockets(c10d::Store& store, PeerGroup group);
  ~PeerSockets();
  PeerSockets(const PeerSockets&) = delete;
  PeerSockets& operator=(const PeerSockets&) = delete;

  /// Transfer of one message.
  class Transfer {
   public:
    /// Returns when the bytes have arrived, or are the kernel's. Throws c10::Error when the connection is gone, and
    /// after the group's timeout. A timeout ends all connections, so that the peers need not wait for theirs.
    void wait();

   private:
    friend class PeerSockets;
    PeerSockets* group = nullptr;
    at::Tensor tensor;  // contiguous on the CPU
    std::uint64_t tag = 0;
    std::int64_t bytes = 0, moved = 0;  // of a send: the header counts
    bool done = false;
    std::string error;
    Then then;  // null: somebody may wait()
  };
  using Pending = std::shared_ptr<Transfer>;

  Pending send(int peer, std::uint64_t tag, const at::Tensor& from);
  /// With `then` nobody may wait() for the transfer.
  Pending receive(int peer, std::uint64_t tag, const at::Tensor& into, Then then = {});

  /// Connections that this rank has been given.
  int connections() const { return static_cast<int>(peers_.size()); }
  /// Messages that this rank has begun to send.
  std::int64_t messages_sent() const;

  /// Ends all transfers, also later ones, with an error that says why. Ends all connections too.
  void abort(const std::string& why);

 private:
  struct Header {
    std::uint64_t tag = 0;
    std::int64_t bytes = 0;
  };
  struct Peer {
    base::Fd fd;
    std::string error;  // not empty: the connection is gone
    std::deque<Pending> sends, receives;
    Header header;  // of the message that arrives
    std::int64_t header_read = 0;
    Pending arriving;        // the receive that the message is for
    bool is_parked = false;  // the header has arrived, and no receive fits it
  };

  void meet(c10d::Store& store);
  void connect_before(c10d::Store& store);
  void accept_after(int listening, std::uint64_t secret);
  Peer& connected(int peer);
  Pending post(const Peer& peer, std::uint64_t tag, const at::Tensor& tensor);
  void run();
  void tell_failed(std::unique_lock<std::mutex>& lock);
  void wake();
  void write_some(Peer& peer, std::unique_lock<std::mutex>& lock, bool unlocks);
  void match(Peer& peer);
  bool read_some(Peer& peer, std::unique_lock<std::mutex>& lock);
  void fail(Peer& peer, const std::string& why);
  void fail_all(const std::string& why);

  const PeerGroup group_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::map<int, Peer> peers_;  // by rank
  std::int64_t messages_ = 0;
  std::vector<std::pair<Then, std::string>> failed_;  // to be told by the thread
  base::Fd wake_fd_;
  bool ends_ = false;
  std::thread thread_;
};

}  // namespace fsdp
