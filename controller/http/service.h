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

/// What every connection of one server shares.
struct Service {
  Service(runtime::Controller& controller, const std::string& host, int port,
          std::shared_ptr<net::Connections> all_connections)
      : access(controller, host, port),
        api(controller, access),
        feed(std::make_unique<Feed>(controller)),
        whose(std::move(all_connections)) {}

  Access access;
  Api api;
  std::unique_ptr<Feed> feed;  // null: shutting down. Only touched in the I/O thread.
  std::shared_ptr<net::Connections> whose;
  /// Calls of the controller. At most one a connection is queued, so the shares of connections bound it.
  boost::asio::thread_pool pool{kPoolThreads};
  std::atomic<std::size_t> connections{0};
  std::atomic<std::size_t> streams{0};
  bool closing = false;  // only touched in the I/O thread
};

}  // namespace http
