#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <memory>

#include "http/service.h"

namespace http {

/// The connection of one client. It serves requests one after the other, or one event stream. It lives in the I/O
/// thread, and ends when the client leaves, stalls for kIdleTimeout or exceeds a limit.
class Connection {
 public:
  virtual ~Connection() = default;
  /// Closes the connection after the running request. An event stream or an idle connection is closed at once.
  virtual void finish() = 0;
  virtual void close() = 0;
};

/// Starts to serve. The connection keeps itself alive until it ends.
std::weak_ptr<Connection> start_connection(boost::asio::ip::tcp::socket socket, std::shared_ptr<Service> service);

}  // namespace http
