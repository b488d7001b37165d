#pragma once
#include <string>
#include <vector>

#include "fsdp/comm/sockets/connect.h"

namespace fsdp::watch {

/// Lines of text in both directions over a socket. No call waits, but close(). Not thread-safe.
class Line {
 public:
  explicit Line(net::Socket socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  /// Sends the text and a line's end. What the kernel does not take now waits for flush().
  void put(const std::string& text);
  void flush();
  bool wants_to_write() const { return !is_gone_ && !out_.empty(); }
  /// The whole lines that have arrived.
  std::vector<std::string> take();
  /// The other end has closed the connection, or said nonsense.
  bool is_gone() const { return is_gone_; }
  /// Ends the connection so that the other end still reads what was put. Waits for that for at most `patience`.
  void close(std::chrono::milliseconds patience);

 private:
  net::Socket socket_;
  std::string in_, out_;
  bool is_gone_ = false;
};

}  // namespace fsdp::watch
