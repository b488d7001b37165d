#pragma once

#include <boost/asio/ip/tcp.hpp>
#include <boost/beast/core/flat_buffer.hpp>
#include <boost/beast/core/tcp_stream.hpp>
#include <boost/beast/http/parser.hpp>
#include <deque>
#include <memory>

#include "http/service.h"

namespace http {

/// The connection of one client. It serves requests one after the other, or one event stream. It lives in the I/O
/// thread, keeps itself alive, and ends when the client leaves, stalls for kIdleTimeout or exceeds a limit.
class Connection : public std::enable_shared_from_this<Connection> {
 public:
  Connection(boost::asio::ip::tcp::socket socket, std::shared_ptr<Service> service);
  ~Connection();

  /// Starts to serve.
  void start() { read(); }
  /// Closes the connection after the running request. An event stream or an idle connection is closed at once.
  void finish();
  void close();

 private:
  void read();
  void on_read(boost::system::error_code error);
  void answer(Request request);
  void is_a_persons();
  void respond(Response response);
  void respond_malformed(boost::system::error_code error);
  void open_stream(std::optional<std::int64_t> after);
  void watch_for_end();
  void queue(const Feed::Text& text);
  void write_next();

  boost::beast::tcp_stream stream_;
  std::shared_ptr<Service> service_;
  boost::beast::flat_buffer buffer_{kMaxHeaderBytes + kMaxBodyBytes};
  std::optional<boost::beast::http::request_parser<boost::beast::http::string_body>> parser_;
  Response response_;
  bool is_first_ = true;
  bool is_known_ = false;  // the client has logged in or shown the token
  bool busy_ = false;      // true from a complete request to the end of its answer
  bool keep_alive_ = true;
  bool head_only_ = false;
  unsigned http_version_ = 11;
  // For event streams.
  bool is_stream_ = false;
  std::uint64_t subscription_ = 0;
  std::deque<Feed::Text> backlog_;
  std::size_t backlog_bytes_ = 0;
  char one_byte_ = 0;
};

}  // namespace http
