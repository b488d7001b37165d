#include "fsdp/comm/watch/line.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>
#include <cerrno>

namespace fsdp::watch {
namespace {

constexpr std::size_t kLongestLine = 1 << 20;

}  // namespace

void Line::put(const std::string& text) {
  if (is_gone_) return;
  out_ += text + "\n";
  flush();
}

void Line::flush() {
  while (wants_to_write()) {
    const ssize_t sent = ::send(fd(), out_.data(), out_.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    if (sent < 0 && errno == EINTR) continue;
    if (sent < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) return;
    if (sent < 0) {
      out_.clear();  // take() reads what has arrived, and then learns that the other end is gone
      return;
    }
    out_.erase(0, static_cast<std::size_t>(sent));
  }
}

std::vector<std::string> Line::take() {
  std::vector<std::string> lines;
  std::array<char, 1 << 14> part;
  while (!is_gone_) {
    const ssize_t got = ::recv(fd(), part.data(), part.size(), MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0 && (errno == EAGAIN || errno == EWOULDBLOCK)) break;
    if (got <= 0) {
      is_gone_ = true;
      break;
    }
    in_.append(part.data(), static_cast<std::size_t>(got));
    std::size_t begin = 0;
    for (std::size_t end; (end = in_.find('\n', begin)) != std::string::npos; begin = end + 1)
      lines.push_back(in_.substr(begin, end - begin));
    in_.erase(0, begin);
    if (in_.size() > kLongestLine) is_gone_ = true;
  }
  return lines;
}

// A close() with unread bytes would reset the connection, and the other end might lose the last lines.
void Line::close(std::chrono::milliseconds patience) {
  const auto deadline = std::chrono::steady_clock::now() + patience;
  while (wants_to_write() && std::chrono::steady_clock::now() < deadline) {
    pollfd one{fd(), POLLOUT, 0};
    (void)::poll(&one, 1, net::left_ms(deadline));
    flush();
  }
  ::shutdown(fd(), SHUT_WR);
  while (!is_gone_ && std::chrono::steady_clock::now() < deadline) {
    pollfd one{fd(), POLLIN, 0};
    (void)::poll(&one, 1, net::left_ms(deadline));
    take();
  }
}

}  // namespace fsdp::watch
