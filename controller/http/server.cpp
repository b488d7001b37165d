#include "http/server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/use_future.hpp>
#include <future>
#include <mutex>
#include <thread>
#include <vector>

#include "http/connection.h"
#include "net/listener.h"

namespace http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

class BeastServer : public Server {
 public:
  BeastServer(service::Controller& controller, const std::string& address,
              const std::shared_ptr<net::Connections>& connections)
      : listener_(address, connections),
        service_(std::make_shared<Service>(controller, listener_.host(), listener_.port(), connections)),
        thread_([this] { io_.run(); }) {
    listener_.start([this](int socket) { asio::post(io_, [this, socket] { take(socket); }); });
  }
  ~BeastServer() override { shutdown(); }

  int port() const override { return listener_.port(); }
  void reopen() override { listener_.reopen(); }
  std::size_t open_streams() const override { return service_->streams; }
  std::size_t open_connections() const override { return service_->connections; }
  void shutdown() override;

 private:
  void take(int socket);

  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  net::Listener listener_;
  std::shared_ptr<Service> service_;
  std::vector<std::weak_ptr<Connection>> connections_;  // used in the I/O thread only
  std::mutex shutdown_mutex_;
  bool stopped_ = false;
  std::thread thread_;
};

void BeastServer::take(int socket) {
  sockaddr_storage address{};
  socklen_t size = sizeof address;
  ::getsockname(socket, reinterpret_cast<sockaddr*>(&address), &size);
  error_code error;
  tcp::socket taken(io_);
  taken.assign(address.ss_family == AF_INET6 ? tcp::v6() : tcp::v4(), socket, error);
  if (error || service_->closing) {
    if (error) ::close(socket);
    return;
  }
  std::erase_if(connections_, [](const auto& connection) { return connection.expired(); });
  const auto connection = std::make_shared<Connection>(std::move(taken), service_);
  connections_.push_back(connection);
  connection->start();
}

void BeastServer::shutdown() {
  const std::lock_guard lock(shutdown_mutex_);
  if (stopped_) return;
  stopped_ = true;
  listener_.stop();
  std::unique_ptr<Feed> feed;
  asio::post(io_, asio::use_future([&] {
               service_->closing = true;
               feed = std::move(service_->feed);
               for (const auto& weak : connections_)
                 if (const auto connection = weak.lock()) connection->finish();
             }))
      .wait();
  feed.reset();
  const auto deadline = std::chrono::steady_clock::now() + kShutdownGrace;
  while (service_->connections > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  asio::post(io_, asio::use_future([&] {
               for (const auto& weak : connections_)
                 if (const auto connection = weak.lock()) connection->close();
             }))
      .wait();
  // Queued calls are dropped. Running calls end in bounded time: the controller bounds them.
  service_->pool.stop();
  service_->pool.join();
  work_.reset();
  io_.stop();
  thread_.join();
}

}  // namespace

std::unique_ptr<Server> serve(service::Controller& controller, const std::string& address,
                              std::shared_ptr<net::Connections> connections) {
  if (!connections) connections = net::connections_of_this_process();
  return std::make_unique<BeastServer>(controller, address, connections);
}

}  // namespace http
