#pragma once

#include <grpcpp/grpcpp.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "controller/common/hearing.h"
#include "controller/common/loop.h"
#include "controller/core/job.h"
#include "muster/v1/rank_service.grpc.pb.h"

namespace rpc {

/// Limits of what one connection may make a gRPC server keep.
struct ReadLimits {
  /// The longest message. gRPC 1.51 compares a message with its limit only when the whole message is there.
  std::size_t message = 0;
  /// Bytes received since no message was unfinished.
  std::size_t unfinished = 0;
  /// Calls whose message is missing or unfinished, and of a rank's connection all open calls (Watched::begin_call).
  /// gRPC 1.51 bounds open calls only for a client that has acknowledged the server's settings.
  std::size_t calls = 0;
  std::size_t header_block = 0;
  /// How long a message may be missing or unfinished.
  std::chrono::milliseconds patience{};
  /// How many calls may begin at once, and as many again in each kBurstEvery. 0: any number. gRPC keeps a call until
  /// its handler has run and its client has been told.
  std::size_t burst = 0;
  static constexpr std::chrono::milliseconds kBurstEvery{250};
};

/// Reads what a client sends to a gRPC server after its greeting, as far as memory goes: which calls have no message
/// yet, and how much of unfinished messages is there. See ReadGuard. Only counts: keeps no byte. Not thread-safe.
class Inspector {
 public:
  using Time = std::chrono::steady_clock::time_point;

  explicit Inspector(const ReadLimits& limits) : limits_(limits) {}

  /// Reads on. Returns what breaks a limit, or null. After a fault the connection must be closed.
  const char* take(std::string_view bytes, Time now);
  /// Bytes that gRPC may keep of this connection's unfinished messages.
  std::size_t held() const { return held_; }
  /// A message has been missing or unfinished for too long.
  bool is_overdue(Time now) const { return !calls_.empty() && now - calls_.front().since > limits_.patience; }

 private:
  static constexpr std::size_t kFrameHeader = 9;
  static constexpr std::size_t kPrefix = 5;

  /// A call whose message is missing or unfinished.
  struct Call {
    std::uint32_t stream = 0;
    Time since{};
    std::size_t prefix = 0;  // how much of the message's prefix is there
    std::uint32_t size = 0;  // of the message, as far as the prefix is there
    std::size_t left = 0;    // of the message, once its prefix is there
  };
  using Calls = std::vector<Call>;

  const char* begin_frame(Time now);
  const char* take_data(std::string_view data, Time now);
  /// So many bytes came, and are kept while a message is unfinished.
  const char* hold(std::size_t bytes);
  void end_frame();
  Calls::iterator find() { return std::ranges::find(calls_, stream_, &Call::stream); }
  const char* open(Time now);
  /// One more call begins; false: there are too many at once.
  bool begin_call(Time now);
  void close(Calls::iterator call) {
    calls_.erase(call);
    if (calls_.empty()) held_ = 0;
  }

  const ReadLimits limits_;
  std::size_t preface_ = 24;  // what is left of it
  std::array<unsigned char, kFrameHeader> header_{};
  std::size_t header_bytes_ = 0;
  std::size_t payload_ = 0;  // what is left of the frame
  std::uint8_t kind_ = 0, flags_ = 0;
  std::uint32_t stream_ = 0;
  std::size_t block_ = 0;  // of the header block under way
  std::size_t held_ = 0;
  std::size_t begun_ = 0;  // calls since burst_since_
  Time burst_since_{};
  Calls calls_;  // oldest first
};

/// musterd's own calls among those of the ranks. A word goes the whole way of a heartbeat: through a socket, and
/// through the threads that read from all ranks. So it is read when the heartbeats that came before it have been read.
/// See common::Reading. Thread-safe.
class ReadingProbe {
 public:
  /// `connect` hands one end of a pair of sockets to the server.
  ReadingProbe(common::Reading& reading, std::function<void(int socket)> connect);
  ~ReadingProbe() { stop(); }

  /// Sends words from now on. Call it when the server takes connections.
  void start();
  /// No word is under way when this returns; again is a no-op.
  void stop();
  /// The server's side, in the thread that reads the word: notes it. False: the call is a rank's.
  bool took(const grpc::CallbackServerContext& context, const muster::v1::HeartbeatRequest& word);

 private:
  void send();
  bool connect_if_broken();

  common::Reading& reading_;
  const std::function<void(int)> connect_;
  const std::string secret_;
  std::unique_ptr<muster::v1::RankService::Stub> stub_;  // of the loop's thread; null: there is no connection
  std::mutex mutex_;
  std::uint64_t next_ = 0;  // the word to be sent; 0: none
  bool stopping_ = false;
  grpc::ClientContext* sent_ = nullptr;  // of the word under way
  common::Loop loop_;
};

/// Limits of what the connections of one gRPC server may make the server keep.
struct ReadRules {
  ReadLimits limits;
  /// Unfinished messages of all connections together. Each connection that has been heard adds kShare to it, and
  /// whoever keeps to kShare is never closed for the sake of others.
  std::size_t unfinished_of_all = 0;
  static constexpr std::size_t kShare = std::size_t{64} << 10;
};

/// The rank that a connection's first call named.
struct RankOf {
  core::AttemptKey attempt;
  core::RankNumber rank = 0;
  auto operator<=>(const RankOf&) const = default;
};

class ReadGuard;

/// One connection that a ReadGuard watches. Thread-safe.
class Watched {
 public:
  /// One more call is open; false: there are too many. Then the connection must be closed.
  bool begin_call();
  void end_call() { --calls_; }

 private:
  friend class ReadGuard;
  friend struct Sockets;
  Watched(ReadGuard& guard, int socket, std::uint64_t cookie, std::string peer, std::optional<RankOf> rank,
          const ReadLimits& limits, Inspector::Time since)
      : guard_(guard),
        socket_(socket),
        cookie_(cookie),
        peer_(std::move(peer)),
        rank_(rank),
        since_(since),
        inspector_(limits) {}

  ReadGuard& guard_;
  const int socket_;
  const std::uint64_t cookie_;  // the kernel's, unique to one socket
  const std::string peer_;
  const std::optional<RankOf> rank_;
  const Inspector::Time since_;
  std::atomic<std::size_t> calls_{0};
  Inspector inspector_;   // of the socket's table
  std::size_t held_ = 0;  // as far as the guard counts it
  std::atomic<bool> is_heard_{false};
  bool is_forgotten_ = false;  // of the guard
};

/// Bounds what the connections of a gRPC server make it keep, between the kernel and gRPC.
///
/// gRPC 1.51 keeps a message until all of it is there, whatever length it claims (up to 4 GiB), and compares the length
/// with the server's limit only then; ResourceQuota would end the calls of whoever has been connected longest. So every
/// byte that gRPC reads from a watched socket goes through an Inspector first: musterd has a `recvmsg` of its own,
/// which libgrpc finds before that of libc. Whoever breaks a limit is shut down, and gRPC reads the end of the
/// connection instead of the bytes.
///
/// A connection of a rank is on trial until the controller has accepted a call on it. Thread-safe. Sockets that were
/// closed are forgotten when gRPC has read their end, and by sweep().
class ReadGuard {
 public:
  /// Connections whose first call named the same rank: the rank's own, that of the task beside it, and those that they
  /// replace.
  static constexpr std::size_t kMostOfRank = 8;
  /// Connections of one attempt on trial.
  static constexpr std::size_t kMostOnTrial = 256;
  static constexpr std::chrono::seconds kTrial{15};
  /// How long a rank stays outside after a connection of it was shut down. gRPC needs a moment to forget its calls.
  static constexpr std::chrono::seconds kOutside{1};

  explicit ReadGuard(const ReadRules& rules) : rules_(rules) {}
  ~ReadGuard();

  /// Why no further connection of this rank can be taken; empty: it can.
  std::string why_full(const RankOf& rank, Inspector::Time now) const;
  /// Watches from now on. `said`: what was read from the socket already. `rank`: of a person none. False: it breaks a
  /// limit already; the caller closes it.
  bool watch(int socket, std::string_view said, std::optional<RankOf> rank, Inspector::Time now);
  /// The connection from `peer`, in gRPC's words; null: it is not watched.
  std::shared_ptr<Watched> find(const std::string& peer) const;
  /// The controller has accepted a call on it.
  void heard(const std::shared_ptr<Watched>& one);
  void close(const std::shared_ptr<Watched>& one, const char* why);
  /// Closes whose message or trial takes too long.
  void sweep(Inspector::Time now);

  struct Counts {
    std::size_t open = 0, on_trial = 0, held = 0;
  };
  Counts counts() const;

 private:
  friend class Watched;
  friend struct Sockets;
  struct Places {
    std::size_t on_trial = 0;
    std::map<core::RankNumber, std::size_t> of_rank;
  };

  /// Notes what it holds now. Returns what is wrong with it, or null.
  const char* account(Watched& one);
  void forget(const std::shared_ptr<Watched>& one);
  /// It was shut down.
  void note(const Watched& one) {
    const std::lock_guard lock(mutex_);
    if (one.rank_) shut_[*one.rank_] = std::chrono::steady_clock::now();
  }
  static void tell(const Watched& one, const char* why);

  const ReadRules rules_;
  std::atomic<std::size_t> held_{0}, heard_{0};
  mutable std::mutex mutex_;
  std::multimap<std::string, std::shared_ptr<Watched>, std::less<>> by_port_;
  std::map<core::AttemptKey, Places> places_;
  std::map<RankOf, Inspector::Time> shut_;  // the last connection of each rank; sweep() forgets them
};

inline bool Watched::begin_call() {
  return ++calls_ <= guard_.rules_.limits.calls;
}

}  // namespace rpc
