#pragma once

#include <atomic>
#include <boost/asio/thread_pool.hpp>
#include <cstddef>
#include <memory>

#include "http/access.h"
#include "http/api.h"
#include "http/feed.h"
#include "http/server.h"
#include "net/connections.h"

namespace http {

/// The parts that all connections of a server share.
struct Service {
  Service(service::Controller& controller, const std::string& host, int port,
          std::shared_ptr<net::Connections> all_connections)
      : access(controller, host, port),
        api(controller, access),
        feed(std::make_unique<Feed>(controller)),
        whose(std::move(all_connections)) {}

  Access access;
  Api api;
  std::unique_ptr<Feed> feed;  // null: the server is shutting down; used in the I/O thread only
  std::shared_ptr<net::Connections> whose;
  /// Runs calls of the controller. A connection queues at most one call, so the number of connections bounds the queue.
  boost::asio::thread_pool pool{kPoolThreads};
  std::atomic<std::size_t> connections{0};
  std::atomic<std::size_t> streams{0};
  bool closing = false;  // used in the I/O thread only
};

}  // namespace http
