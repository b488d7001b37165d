#pragma once

#include <grpcpp/grpcpp.h>

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

#include "controller/common/hearing.h"
#include "controller/common/loop.h"
#include "controller/core/job.h"
#include "controller/rpc/inspector.h"
#include "muster/v1/rank_service.grpc.pb.h"

namespace rpc {

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
  ReadGuard(const ReadGuard&) = delete;
  ReadGuard& operator=(const ReadGuard&) = delete;

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
  void note(const Watched& one);
  static void tell(const Watched& one, const char* why);

  const ReadRules rules_;
  std::atomic<std::size_t> held_{0}, heard_{0};
  mutable std::mutex mutex_;
  std::multimap<std::string, std::shared_ptr<Watched>, std::less<>> by_port_;
  std::map<core::AttemptKey, Places> places_;
  std::map<RankOf, Inspector::Time> shut_;  // the last connection of each rank; sweep() forgets them
};

}  // namespace rpc
