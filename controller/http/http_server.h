#pragma once

#include <chrono>
#include <cstddef>
#include <memory>
#include <string>

#include "controller/net/connections.h"
#include "controller/net/listener.h"

namespace service {
class Controller;
}

namespace http {

/// The most event streams that are open at once. A browser needs one for all its tabs.
inline constexpr std::size_t kMaxStreams = 256;
/// The largest request line with headers (above: 431), and the largest body (above: 413).
inline constexpr std::size_t kMaxHeaderBytes = 16 * 1024;
inline constexpr std::size_t kMaxBodyBytes = 64 * 1024;
/// The largest body of a submission by somebody who has the token: a job file of 1 MiB in JSON, or 10,000 short jobs.
inline constexpr std::size_t kMaxSubmissionBytes = 4 * 1024 * 1024;
/// The headers of a connection's first request must be complete within this time of its arrival (net::HttpGate), and
/// the request within this time of its headers.
inline constexpr std::chrono::seconds kFirstRequestWithin{5};
/// A later request must be complete, and the client must take an answer, within this time. An idle connection is closed
/// after it.
inline constexpr std::chrono::seconds kIdleTimeout{30};
/// The most bytes that a slow reader of an event stream may leave unread. Then it is cut off, and catches up after it
/// has connected again.
inline constexpr std::size_t kMaxStreamBacklogBytes = 1024 * 1024;
/// The number of threads for calls of the controller, which may wait for a disk.
inline constexpr int kPoolThreads = 4;
/// How long running requests may take when the server shuts down.
inline constexpr std::chrono::seconds kShutdownGrace{1};

/// musterd's HTTP server: the dashboard, its API under /api/v1, the event stream, /metrics and /healthz.
class Server : public net::Server {
 public:
  /// How many connections are open now, including event streams.
  virtual std::size_t open_connections() const = 0;
};

/// Serves `controller` on "host:port". The controller must outlive the server. Throws std::runtime_error with address,
/// cause and remedy if the address cannot be bound. An address in use is an error; the port is never shared.
/// Nobody reaches the server before the headers of a request (net::HttpGate). `connections` limits the number of
/// connections, and may be shared with other servers. Null: the server uses connections_of_this_process().
std::unique_ptr<Server> serve(service::Controller& controller, const std::string& address,
                              std::shared_ptr<net::Connections> connections = nullptr);

}  // namespace http
