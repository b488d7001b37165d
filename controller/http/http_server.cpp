#include "controller/http/http_server.h"

#include <sys/socket.h>
#include <unistd.h>

#include <boost/asio/executor_work_guard.hpp>
#include <boost/asio/io_context.hpp>
#include <boost/asio/ip/tcp.hpp>
#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>
#include <boost/asio/use_future.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http.hpp>
#include <boost/beast/http/parser.hpp>

#include <algorithm>
#include <array>
#include <atomic>
#include <deque>
#include <mutex>
#include <string_view>
#include <thread>
#include <vector>

#include "base/numbers.h"
#include "controller/http/access.h"
#include "controller/http/api.h"
#include "controller/http/feed.h"
#include "controller/net/gate.h"

namespace http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using asio::ip::tcp;
using boost::system::error_code;

// Sent with every answer. A page may load nothing from other sites, no site may frame it, and browsers must not guess
// types.
constexpr std::pair<const char*, const char*> kSecurityHeaders[] = {
    {"Content-Security-Policy",
     "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
     "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"},
    {"X-Content-Type-Options", "nosniff"},
    {"X-Frame-Options", "DENY"},
    {"Referrer-Policy", "no-referrer"},
    {"Cross-Origin-Resource-Policy", "same-origin"},
};

/// How long a refused client may go on sending its body.
constexpr std::chrono::seconds kLingerTime{2};

std::string stream_head() {
  std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n";
  for (const auto& [name, value] : kSecurityHeaders) head += std::string(name) + ": " + value + "\r\n";
  return head + "Connection: close\r\n\r\n";
}

/// The route of the event stream; null for any other request.
const Route* stream_of(const Request& request) {
  const auto route = find_route(request.method(), request.path).route;
  return route != nullptr && route->answer == nullptr ? route : nullptr;
}

std::optional<std::int64_t> resume_point(const Request& request) {
  // A reconnecting EventSource sends the header. A page that takes over another tab's stream sends ?after=.
  const auto header = request.header("last-event-id");
  const auto& text = header.empty() ? request.parameter("after") : header;
  const auto id = base::whole_number<std::int64_t>(text);
  return id && *id >= 0 ? id : std::nullopt;
}

/// True if a request that begins so shows the token or a session.
bool is_a_persons(const std::string& head, Access& access) {
  beast::http::request_parser<beast::http::string_body> parser;
  parser.header_limit(kMaxHeaderBytes);
  parser.body_limit(kMaxSubmissionBytes);
  error_code error;
  parser.put(asio::buffer(head), error);
  return parser.is_header_done() && !access.refuse_stranger({parser.release(), {}, {}});
}

/// The parts that all connections of a server share.
struct Service {
  Service(service::Controller& controller, const std::string& host, int port,
          std::shared_ptr<net::Connections> all_connections)
      : access(controller, host, port),
        api(controller, access, all_connections),
        feed(std::make_unique<Feed>(controller)),
        whose(std::move(all_connections)) {}

  Access access;
  Api api;
  std::unique_ptr<Feed> feed;  // null: the server is shutting down; used in the I/O thread only
  std::shared_ptr<net::Connections> whose;
  /// Runs calls of the controller. A connection queues at most one call, so the number of connections bounds the queue.
  asio::thread_pool pool{kPoolThreads};
  std::atomic<std::size_t> connections{0};
  std::atomic<std::size_t> streams{0};
  bool closing = false;  // used in the I/O thread only
};

/// The connection of one client. It serves requests one after the other, or one event stream. It lives in the I/O
/// thread, keeps itself alive, and ends when the client leaves, stalls for kIdleTimeout or exceeds a limit.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  /// `said`: what was read from the socket already.
  Connection(tcp::socket socket, std::string_view said, std::shared_ptr<Service> service)
      : stream_(std::move(socket)), service_(std::move(service)) {
    ++service_->connections;
    buffer_.commit(asio::buffer_copy(buffer_.prepare(said.size()), asio::buffer(said)));
  }
  ~Connection() {
    if (is_stream_) {
      --service_->streams;
      --service_->api.metrics_page().streams;
    }
    --service_->connections;
  }

  /// Starts to serve.
  void start() { read(); }
  /// Closes the connection after the running request. An event stream or an idle connection is closed at once.
  void finish() {
    if (!busy_ || is_stream_) close();
    keep_alive_ = false;
  }
  void close() {
    if (is_stream_ && service_->feed) service_->feed->unsubscribe(subscription_);
    error_code ignored;
    stream_.socket().shutdown(tcp::socket::shutdown_both, ignored);
    stream_.close();
  }

 private:
  void read() {
    busy_ = false;
    parser_.emplace();
    parser_->header_limit(kMaxHeaderBytes);
    parser_->body_limit(kMaxSubmissionBytes);
    stream_.expires_after(is_first_ ? kFirstRequestWithin : kIdleTimeout);
    is_first_ = false;
    beast::http::async_read_header(stream_, buffer_, *parser_,
                                   [self = shared_from_this()](error_code error, std::size_t) {
                                     error ? self->on_read(error) : self->read_body();
                                   });
  }
  void read_body() {
    const auto length = parser_->content_length().value_or(0);
    if (parser_->chunked() || length > kMaxBodyBytes) {
      Request head{parser_->get(), {}, {}};
      const auto* route = parse_target(head) ? find_route(head.method(), head.path).route : nullptr;
      const bool is_large = route != nullptr && route->is_large;
      // A stranger's body is small, whatever the stranger asks for.
      if (auto stranger = is_large ? service_->access.refuse_stranger(head) : std::nullopt)
        return refuse_unread(std::move(*stranger));
      if (!is_large && length > kMaxBodyBytes) return on_read(make_error_code(beast::http::error::body_limit));
      if (!is_large) parser_->body_limit(kMaxBodyBytes);
    }
    beast::http::async_read(stream_, buffer_, *parser_,
                            [self = shared_from_this()](error_code error, std::size_t) { self->on_read(error); });
  }
  /// Answers before the body has been read.
  void refuse_unread(Response response) {
    busy_ = true;
    keep_alive_ = false;
    is_unread_ = true;
    respond(std::move(response));
  }
  /// Reads on for a moment, so that a client that still sends its body gets to read the refusal.
  void linger(std::size_t left) {
    stream_.async_read_some(asio::buffer(ignored_), [self = shared_from_this(), left](error_code error, std::size_t n) {
      if (error || n >= left || self->service_->closing) return self->close();
      self->linger(left - n);
    });
  }
  void on_read(error_code error) {
    namespace http_error = beast::http;
    if (error == http_error::error::end_of_stream || service_->closing) return close();
    if (error && error.category() != make_error_code(http_error::error::bad_method).category()) return close();
    busy_ = true;
    if (!is_known_) service_->whose->asked(stream_.socket().native_handle(), net::Connections::Clock::now());
    if (error) return respond_malformed(error);
    keep_alive_ = parser_->get().keep_alive();
    answer({parser_->release(), {}, {}});
  }
  void answer(Request request) {
    head_only_ = request.method() == beast::http::verb::head;
    http_version_ = request.version();
    if (!parse_target(request)) {
      keep_alive_ = false;
      return respond(refuse(400, "the address is malformed", "percent-encode it as UTF-8"));
    }
    asio::post(service_->pool, [self = shared_from_this(), request = std::move(request)] {
      Response response;
      bool stream = false;
      if (const auto* route = stream_of(request)) {
        auto refused = self->service_->access.refuse_foreign(request);
        if (!refused) refused = self->service_->access.refuse_stranger(request);
        if (!refused) refused = refuse_parameters(*route, request);
        stream = !refused;
        if (refused) response = std::move(*refused);
      } else {
        response = self->service_->api.answer(request);
      }
      const auto after = resume_point(request);
      const bool known = self->is_known_ || !self->service_->access.refuse_stranger(request);
      asio::post(self->stream_.get_executor(), [self, response = std::move(response), stream, known, after]() mutable {
        if (known) self->is_a_persons();
        if (stream)
          self->open_stream(after);
        else
          self->respond(std::move(response));
      });
    });
  }
  // Called for each request: the share of people may have been used up before.
  void is_a_persons() {
    is_known_ = true;
    service_->whose->know(stream_.socket().native_handle(), net::Party::kPerson, net::Connections::Clock::now());
  }
  void respond(Response response) {
    if (!is_known_) service_->whose->answered(stream_.socket().native_handle(), net::Connections::Clock::now());
    response_ = std::move(response);
    response_.version(http_version_);
    if (response_["Cache-Control"].empty()) response_.set(beast::http::field::cache_control, "no-store");
    for (const auto& [name, value] : kSecurityHeaders) response_.set(name, value);
    response_.keep_alive(keep_alive_ && !service_->closing);
    if (response_.result_int() != 304) response_.content_length(response_.body().size());
    if (head_only_) response_.body().clear();
    stream_.expires_after(kIdleTimeout);
    beast::http::async_write(stream_, response_, [self = shared_from_this()](error_code error, std::size_t) {
      if (error || self->service_->closing) return self->close();
      if (self->keep_alive_) return self->read();
      if (!self->is_unread_) return self->close();
      error_code ignored;
      self->busy_ = false;
      self->stream_.socket().shutdown(tcp::socket::shutdown_send, ignored);
      self->stream_.expires_after(kLingerTime);
      self->linger(kMaxSubmissionBytes);
    });
  }
  void respond_malformed(error_code error) {
    keep_alive_ = false;
    if (error == beast::http::error::header_limit || error == beast::http::error::buffer_overflow)
      return respond(refuse(431, "the request's headers are too large", "send at most 16 KiB of them"));
    if (error == beast::http::error::body_limit)
      return refuse_unread(
          refuse(413, "the request's body is too large", "send at most 64 KiB, or 4 MiB of a job or a sweep"));
    respond(refuse(400, "this is not an HTTP request: " + error.message(), "send HTTP/1.1"));
  }
  void open_stream(std::optional<std::int64_t> after) {
    if (service_->closing || !service_->feed) {
      keep_alive_ = false;
      return respond(refuse(503, "musterd is shutting down", "connect again in a moment"));
    }
    if (service_->streams >= kMaxStreams)
      return respond(refuse(503, "too many event streams are open (" + std::to_string(kMaxStreams) + ")",
                            "close some windows of the dashboard"));
    is_stream_ = true;
    ++service_->streams;
    ++service_->api.metrics_page().streams;
    queue(std::make_shared<const std::string>(stream_head()));
    const auto weak = weak_from_this();
    subscription_ = service_->feed->subscribe(after, [weak, executor = stream_.get_executor()](const Feed::Text& text) {
      asio::post(executor, [weak, text] {
        if (const auto self = weak.lock()) self->queue(text);
      });
    });
    watch_for_end();
  }
  // The client of an event stream sends nothing more. So the stream ends when this read ends.
  void watch_for_end() {
    stream_.socket().async_read_some(asio::buffer(&one_byte_, 1),
                                     [self = shared_from_this()](error_code, std::size_t) { self->close(); });
  }
  void queue(const Feed::Text& text) {
    if (!stream_.socket().is_open()) return;
    if (backlog_bytes_ + text->size() > kMaxStreamBacklogBytes) return close();
    backlog_bytes_ += text->size();
    backlog_.push_back(text);
    if (backlog_.size() == 1) write_next();
  }
  void write_next() {
    stream_.expires_after(kIdleTimeout);
    asio::async_write(stream_, asio::buffer(*backlog_.front()),
                      [self = shared_from_this()](error_code error, std::size_t) {
                        self->backlog_bytes_ -= self->backlog_.front()->size();
                        self->backlog_.pop_front();
                        if (error) return self->close();
                        if (self->backlog_.empty())
                          self->stream_.expires_never();
                        else
                          self->write_next();
                      });
  }

  beast::tcp_stream stream_;
  std::shared_ptr<Service> service_;
  beast::flat_buffer buffer_{kMaxHeaderBytes + kMaxBodyBytes};
  std::optional<beast::http::request_parser<beast::http::string_body>> parser_;
  Response response_;
  bool is_first_ = true;
  bool is_known_ = false;  // the client has logged in or shown the token
  bool busy_ = false;      // true from a complete request to the end of its answer
  bool keep_alive_ = true;
  bool head_only_ = false;
  bool is_unread_ = false;  // the answer is a refusal, and the body may still come
  std::array<char, 4096> ignored_;
  unsigned http_version_ = 11;
  // For event streams.
  bool is_stream_ = false;
  std::uint64_t subscription_ = 0;
  std::deque<Feed::Text> backlog_;
  std::size_t backlog_bytes_ = 0;
  char one_byte_ = 0;
};

class BeastServer : public Server {
 public:
  BeastServer(service::Controller& controller, const std::string& address,
              const std::shared_ptr<net::Connections>& connections)
      : gate_(std::make_shared<net::HttpGate>(
            connections,
            net::HttpGate::Rules{kMaxHeaderBytes, kFirstRequestWithin,
                                 [this](const std::string& head) { return is_a_persons(head, service_->access); },
                                 [this](int socket, const std::string& said) {
                                   asio::post(io_, [this, socket, said] { take(socket, said); });
                                 }})),
        listener_(address, gate_),
        service_(std::make_shared<Service>(controller, listener_.host(), listener_.port(), connections)),
        thread_([this] { io_.run(); }) {
    listener_.start();
  }
  ~BeastServer() override { shutdown(); }

  int port() const override { return listener_.port(); }
  void reopen() override { listener_.reopen(); }
  std::size_t open_streams() const override { return service_->streams; }
  std::size_t open_connections() const override { return service_->connections + service_->whose->open().asking; }
  void shutdown() override {
    const std::lock_guard lock(shutdown_mutex_);
    if (stopped_) return;
    stopped_ = true;
    listener_.stop();
    gate_->close_all();
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

 private:
  void take(int socket, const std::string& said) {
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
    const auto connection = std::make_shared<Connection>(std::move(taken), said, service_);
    connections_.push_back(connection);
    connection->start();
  }

  asio::io_context io_{1};
  asio::executor_work_guard<asio::io_context::executor_type> work_{io_.get_executor()};
  const std::shared_ptr<net::HttpGate> gate_;
  net::Listener listener_;
  std::shared_ptr<Service> service_;
  std::vector<std::weak_ptr<Connection>> connections_;  // used in the I/O thread only
  std::mutex shutdown_mutex_;
  bool stopped_ = false;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<Server> serve(service::Controller& controller, const std::string& address,
                              std::shared_ptr<net::Connections> connections) {
  if (!connections) connections = net::connections_of_this_process();
  return std::make_unique<BeastServer>(controller, address, connections);
}

}  // namespace http
