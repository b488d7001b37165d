#include "http/connection.h"

#include <boost/asio/post.hpp>
#include <boost/asio/write.hpp>
#include <boost/beast/http.hpp>
#include <charconv>

namespace http {
namespace {

namespace asio = boost::asio;
namespace beast = boost::beast;
using boost::system::error_code;

constexpr std::string_view kStreamPath = "/api/v1/stream";

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

std::string stream_head() {
  std::string head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nCache-Control: no-store\r\n";
  for (const auto& [name, value] : kSecurityHeaders) head += std::string(name) + ": " + value + "\r\n";
  return head + "Connection: close\r\n\r\n";
}

std::optional<std::int64_t> resume_point(const Request& request) {
  // A reconnecting EventSource sends the header. A page that takes over another tab's stream sends ?after=.
  const auto header = request.header("last-event-id");
  const auto& text = header.empty() ? request.parameter("after") : header;
  std::int64_t id = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), id);
  if (text.empty() || error != std::errc() || end != text.data() + text.size() || id < 0) return std::nullopt;
  return id;
}

}  // namespace

Connection::Connection(asio::ip::tcp::socket socket, std::shared_ptr<Service> service)
    : stream_(std::move(socket)), service_(std::move(service)) {
  ++service_->connections;
}

Connection::~Connection() {
  if (is_stream_) {
    --service_->streams;
    --service_->api.metrics_page().streams;
  }
  --service_->connections;
}

void Connection::finish() {
  if (!busy_ || is_stream_) close();
  keep_alive_ = false;
}

void Connection::close() {
  if (is_stream_ && service_->feed) service_->feed->unsubscribe(subscription_);
  error_code ignored;
  stream_.socket().shutdown(asio::ip::tcp::socket::shutdown_both, ignored);
  stream_.close();
}

void Connection::read() {
  busy_ = false;
  parser_.emplace();
  parser_->header_limit(kMaxHeaderBytes);
  parser_->body_limit(kMaxBodyBytes);
  stream_.expires_after(is_first_ ? kFirstRequestWithin : kIdleTimeout);
  is_first_ = false;
  beast::http::async_read(stream_, buffer_, *parser_,
                          [self = shared_from_this()](error_code error, std::size_t) { self->on_read(error); });
}

void Connection::on_read(error_code error) {
  namespace http_error = beast::http;
  if (error == http_error::error::end_of_stream || service_->closing) return close();
  if (error && error.category() != make_error_code(http_error::error::bad_method).category()) return close();
  busy_ = true;
  if (error) return respond_malformed(error);
  keep_alive_ = parser_->get().keep_alive();
  answer({parser_->release(), {}, {}});
}

void Connection::respond_malformed(error_code error) {
  keep_alive_ = false;
  if (error == beast::http::error::header_limit || error == beast::http::error::buffer_overflow)
    return respond(refuse(431, "the request's headers are too large", "send at most 16 KiB of them"));
  if (error == beast::http::error::body_limit)
    return respond(refuse(413, "the request's body is too large", "send at most 64 KiB"));
  respond(refuse(400, "this is not an HTTP request: " + error.message(), "send HTTP/1.1"));
}

void Connection::answer(Request request) {
  head_only_ = request.method() == beast::http::verb::head;
  http_version_ = request.version();
  if (!parse_target(request)) {
    keep_alive_ = false;
    return respond(refuse(400, "the address is malformed", "percent-encode it as UTF-8"));
  }
  asio::post(service_->pool, [self = shared_from_this(), request = std::move(request)] {
    Response response;
    bool stream = false;
    if (request.path == kStreamPath && request.method() == beast::http::verb::get) {
      auto refused = self->service_->access.refuse_foreign(request);
      if (!refused) refused = self->service_->access.refuse_stranger(request);
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
void Connection::is_a_persons() {
  is_known_ = true;
  service_->whose->know(stream_.socket().native_handle(), net::Party::kPerson, net::Connections::Clock::now());
}

void Connection::respond(Response response) {
  if (!is_known_) service_->whose->answered(stream_.socket().native_handle());
  response_ = std::move(response);
  response_.version(http_version_);
  if (response_["Cache-Control"].empty()) response_.set(beast::http::field::cache_control, "no-store");
  for (const auto& [name, value] : kSecurityHeaders) response_.set(name, value);
  response_.keep_alive(keep_alive_ && !service_->closing);
  if (response_.result_int() != 304) response_.content_length(response_.body().size());
  if (head_only_) response_.body().clear();
  stream_.expires_after(kIdleTimeout);
  beast::http::async_write(stream_, response_, [self = shared_from_this()](error_code error, std::size_t) {
    if (error || !self->keep_alive_ || self->service_->closing) return self->close();
    self->read();
  });
}

void Connection::open_stream(std::optional<std::int64_t> after) {
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
void Connection::watch_for_end() {
  stream_.socket().async_read_some(asio::buffer(&one_byte_, 1),
                                   [self = shared_from_this()](error_code, std::size_t) { self->close(); });
}

void Connection::queue(const Feed::Text& text) {
  if (!stream_.socket().is_open()) return;
  if (backlog_bytes_ + text->size() > kMaxStreamBacklogBytes) return close();
  backlog_bytes_ += text->size();
  backlog_.push_back(text);
  if (backlog_.size() == 1) write_next();
}

void Connection::write_next() {
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

}  // namespace http
