#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <memory>

#include "http/service.h"

namespace http {

/// One client: request after request, or one event stream. Lives in the I/O thread; ends by itself when the client
/// leaves, stalls for kIdleTimeout or breaks a limit.
class Connection {
 public:
  virtual ~Connection() = default;
  /// Closes when the running request is answered; at once if there is none, or it is an event stream.
  virtual void finish() = 0;
  virtual void close() = 0;
};

/// Starts serving. The connection keeps itself alive until it ends.
std::weak_ptr<Connection> start_connection(boost::asio::ip::tcp::socket socket, std::shared_ptr<Service> service);

}  // namespace http
