#include "agent/supervisor/socket_client.h"

#include <sys/socket.h>

#include <cerrno>

namespace agent::supervisor {
namespace {

constexpr std::size_t kMaxCommandBytes = 256;

}  // namespace

void Client::tell(std::string_view facts) {
  while (!gone_ && is_behind(facts)) {
    // A line that has begun ends before another begins.
    const auto left = now_.empty() ? facts.substr(told_) : std::string_view(now_);
    const auto count = ::send(socket_.get(), left.data(), left.size(), MSG_NOSIGNAL);
    if (count < 0) {
      gone_ = errno != EAGAIN && errno != EINTR;
      return;
    }
    if (now_.empty()) {
      told_ += static_cast<std::size_t>(count);
    } else {
      now_.erase(0, static_cast<std::size_t>(count));
    }
  }
}

void Client::tell_now(std::string_view facts, const std::string& line) {
  if (is_behind(facts)) return;
  now_ = line;
  tell(facts);
}

std::vector<std::string> Client::hear() {
  std::vector<std::string> lines;
  char buffer[kMaxCommandBytes];
  const auto count = ::recv(socket_.get(), buffer, sizeof buffer, 0);
  if (count < 0) {
    gone_ = errno != EAGAIN && errno != EINTR;
    return lines;
  }
  words_.append(buffer, static_cast<std::size_t>(count));
  for (auto end = words_.find('\n'); end != std::string::npos; end = words_.find('\n')) {
    lines.push_back(words_.substr(0, end));
    words_.erase(0, end + 1);
  }
  gone_ = count == 0 || words_.size() > kMaxCommandBytes;
  return lines;
}

}  // namespace agent::supervisor
