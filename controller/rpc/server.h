#pragma once

#include <cstddef>
#include <memory>
#include <string>

namespace net {
class Connections;
}

namespace runtime {
class Controller;
}

namespace rpc {

/// Streams (Watch, Events, Metrics, Logs) open at once; each holds a thread.
inline constexpr int kMaxStreams = 64;
/// Unary calls of people served at once, besides the streams.
inline constexpr int kMaxPeopleCalls = 192;
/// Calls of ranks that write at once; many share one fsync.
inline constexpr int kRankThreads = 32;
/// Calls of ranks waiting for their turn, and ranks waiting at the rendezvous.
inline constexpr int kMaxRankCalls = 8192;
/// A client that has connected says what HTTP/2 wants first within this.
inline constexpr int kHandshakeMs = 10'000;
/// Largest request.
inline constexpr int kMaxRequestBytes = 32 * 1024 * 1024;
/// Most metrics, and most checkpoints, of one heartbeat.
inline constexpr int kMaxMetricsAHeartbeat = 512;

/// musterd's gRPC side: JobService, RankService and AdminService of one controller. Thread-safe.
class Server {
 public:
  virtual ~Server() = default;
  /// The port it listens on; the one the system chose where the address said 0.
  virtual int port() const = 0;
  /// Closes the port and opens it anew, soon.
  virtual void reopen() = 0;
  /// Streams open now.
  virtual std::size_t open_streams() const = 0;
  /// Takes no new calls, ends streams and waits (UNAVAILABLE), gives the other calls a second, then cancels them.
  /// Returns when all have ended; again is a no-op. The destructor does it too. Call it before the controller stops.
  virtual void shutdown() = 0;
};

/// Serves `controller`, which must outlive the server, on "host:port". Throws std::runtime_error that names address,
/// cause and remedy when the address can't be bound; an address in use is refused, never shared. `connections` may be
/// shared with other servers; none: those that the descriptors of this process allow.
std::unique_ptr<Server> serve(runtime::Controller& controller, const std::string& address,
                              std::shared_ptr<net::Connections> connections = nullptr);

}  // namespace rpc
