#include "http/server.h"

#include <algorithm>
#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/steady_timer.hpp>
#include <charconv>
#include <future>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <vector>

#include "http/connection.h"

namespace http {
namespace {

namespace asio = boost::asio;
using asio::ip::tcp;
using boost::system::error_code;

struct HostPort {
  std::string host;
  std::string port;
};

HostPort split(const std::string& address) {
  const auto colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size())
    throw std::runtime_error("the dashboard's address '" + address + "' is not host:port; try 127.0.0.1:8080");
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);
  const std::string port = address.substr(colon + 1);
  int number = -1;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  if (error != std::errc() || end != port.data() + port.size() || number < 0 || number > 65535)
    throw std::runtime_error("the dashboard's port '" + port + "' is not a number from 0 to 65535");
  return {host, port};
}

std::runtime_error not_bound(const std::string& address, const error_code& error) {
  std::string remedy = "choose an address of this machine";
  if (error == asio::error::address_in_use)
    remedy = "stop what listens there, or choose another port (0: any free one)";
  if (error == asio::error::access_denied) remedy = "choose a port above 1023";
  return std::runtime_error("cannot serve the dashboard on " + address + ": " + error.message() + "; " + remedy);
}

class BeastServer : public Server {
 public:
  BeastServer(runtime::Controller& controller, const std::string& address) : acceptor_(io_), retry_(io_) {
    const HostPort where = split(address);
    bind(address, where);
    service_ = std::make_shared<Service>(controller, where.host, port());
    accept();
    thread_ = std::thread([this] { io_.run(); });
  }
  ~BeastServer() override { shutdown(); }

  int port() const override { return port_; }
  std::size_t open_streams() const override { return service_->streams; }
  std::size_t open_connections() const override { return service_->connections; }
  void shutdown() override;

 private:
  void bind(const std::string& address, const HostPort& where);
  void accept();
  void on_accept(error_code error, tcp::socket socket);
  template <typename Function>
  void in_io_thread(Function function);

  asio::io_context io_{1};
  tcp::acceptor acceptor_;
  asio::steady_timer retry_;
  int port_ = 0;
  std::shared_ptr<Service> service_;
  std::vector<std::weak_ptr<Connection>> connections_;  // only touched in the I/O thread
  std::mutex shutdown_mutex_;
  bool stopped_ = false;
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  std::thread thread_;
};

void BeastServer::bind(const std::string& address, const HostPort& where) {
  error_code error;
  tcp::resolver resolver(io_);
  const auto found = resolver.resolve(where.host, where.port, tcp::resolver::passive, error);
  if (error || found.empty()) throw not_bound(address, error ? error : asio::error::host_not_found);
  const tcp::endpoint endpoint = found.begin()->endpoint();
  acceptor_.open(endpoint.protocol(), error);
  // On Linux this lets a restarted musterd have its port at once; it never shares a port that is listened on.
  if (!error) acceptor_.set_option(tcp::acceptor::reuse_address(true), error);
  if (!error) acceptor_.bind(endpoint, error);
  if (!error) acceptor_.listen(asio::socket_base::max_listen_connections, error);
  if (error) throw not_bound(address, error);
  port_ = acceptor_.local_endpoint().port();
}

void BeastServer::accept() {
  acceptor_.async_accept([this](error_code error, tcp::socket socket) { on_accept(error, std::move(socket)); });
}

void BeastServer::on_accept(error_code error, tcp::socket socket) {
  if (service_->closing) return;
  if (error) {
    // No file descriptors left, most likely: waiting is better than spinning.
    retry_.expires_after(std::chrono::milliseconds(100));
    retry_.async_wait([this](error_code cancelled) {
      if (!cancelled) accept();
    });
    return;
  }
  std::erase_if(connections_, [](const auto& connection) { return connection.expired(); });
  if (service_->connections >= kMaxConnections)
    turn_away(std::move(socket));
  else
    connections_.push_back(start_connection(std::move(socket), service_));
  accept();
}

template <typename Function>
void BeastServer::in_io_thread(Function function) {
  std::promise<void> done;
  asio::post(io_, [&] {
    function();
    done.set_value();
  });
  done.get_future().wait();
}

void BeastServer::shutdown() {
  const std::lock_guard lock(shutdown_mutex_);
  if (stopped_) return;
  stopped_ = true;
  std::unique_ptr<Feed> feed;
  in_io_thread([&] {
    service_->closing = true;
    error_code ignored;
    acceptor_.close(ignored);
    retry_.cancel();
    feed = std::move(service_->feed);
    for (const auto& weak : connections_)
      if (const auto connection = weak.lock()) connection->finish();
  });
  feed.reset();
  const auto deadline = std::chrono::steady_clock::now() + kShutdownGrace;
  while (service_->connections > 0 && std::chrono::steady_clock::now() < deadline)
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  in_io_thread([&] {
    for (const auto& weak : connections_)
      if (const auto connection = weak.lock()) connection->close();
  });
  // What is queued is dropped; what runs now is inside the controller, which has its own bounds.
  service_->pool.stop();
  service_->pool.join();
  work_.reset();
  io_.stop();
  thread_.join();
}

}  // namespace

std::unique_ptr<Server> serve(runtime::Controller& controller, const std::string& address) {
  return std::make_unique<BeastServer>(controller, address);
}

}  // namespace http
