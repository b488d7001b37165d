#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

namespace net {
class Connections;
}

namespace runtime {
class Controller;
}

namespace http {

/// Event streams open at once. A browser needs one, however many tabs it has.
inline constexpr std::size_t kMaxStreams = 64;
/// Largest request line and headers (431 above it), and largest body (413 above it).
inline constexpr std::size_t kMaxHeaderBytes = 16 * 1024;
inline constexpr std::size_t kMaxBodyBytes = 64 * 1024;
/// A connection's first request must be whole within this.
inline constexpr std::chrono::seconds kFirstRequestWithin{5};
/// A later one must be, a response must be taken, and an idle connection is closed, within this.
inline constexpr std::chrono::seconds kIdleTimeout{30};
/// What a slow reader of an event stream may leave unread; then it is cut off, and catches up when it reconnects.
inline constexpr std::size_t kMaxStreamBacklogBytes = 1024 * 1024;
/// Threads for calls of the controller, which may wait for a disk.
inline constexpr int kPoolThreads = 4;
/// What running requests get to end in when the server shuts down.
inline constexpr std::chrono::seconds kShutdownGrace{1};

/// musterd's HTTP side: the dashboard, its API under /api/v1, the event stream, /metrics and /healthz. Thread-safe.
class Server {
 public:
  virtual ~Server() = default;
  /// The port it listens on; the one the system chose where the address said 0.
  virtual int port() const = 0;
  /// Closes the port and opens it anew, soon.
  virtual void reopen() = 0;
  /// Event streams open now.
  virtual std::size_t open_streams() const = 0;
  /// Connections open now, event streams among them.
  virtual std::size_t open_connections() const = 0;
  /// Takes no new connections, ends streams, gives running requests kShutdownGrace, then closes them. Again is a no-op;
  /// the destructor does it too. Call it before the controller stops.
  virtual void shutdown() = 0;
};

/// Serves `controller`, which must outlive the server, on "host:port". Throws std::runtime_error that names address,
/// cause and remedy when the address can't be bound; an address in use is refused, never shared. `connections` may be
/// shared with other servers, and bounds how many there are; none: those that the descriptors of this process allow.
std::unique_ptr<Server> serve(runtime::Controller& controller, const std::string& address,
                              std::shared_ptr<net::Connections> connections = nullptr);

}  // namespace http
