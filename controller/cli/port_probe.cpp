#include "cli/port_probe.h"

#include <netdb.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <memory>
#include <string_view>

namespace cli {
namespace {

constexpr int kPatienceMs = 500;  // for connecting, and again for the answer

/// Connects. Returns the socket, or -1.
int connect_to(const addrinfo& entry) {
  const int fd = socket(entry.ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  if (connect(fd, entry.ai_addr, entry.ai_addrlen) == 0) return fd;
  pollfd ready{fd, POLLOUT, 0};
  int error = 0;
  socklen_t size = sizeof error;
  const bool connected = errno == EINPROGRESS && poll(&ready, 1, kPatienceMs) == 1 &&
                         getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) == 0 && error == 0;
  if (connected) return fd;
  close(fd);
  return -1;
}

bool answers_http(int fd, const std::string& host) {
  const auto question = "GET /healthz HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n";
  if (send(fd, question.data(), question.size(), MSG_NOSIGNAL) != static_cast<ssize_t>(question.size())) return false;
  constexpr std::string_view kAnswer = "HTTP/1";
  char begin[kAnswer.size()];
  pollfd ready{fd, POLLIN, 0};
  if (poll(&ready, 1, kPatienceMs) != 1) return false;
  const auto count = recv(fd, begin, sizeof begin, 0);
  return count == static_cast<ssize_t>(kAnswer.size()) && std::string_view(begin, kAnswer.size()) == kAnswer;
}

}  // namespace

bool speaks_http(const std::string& address) {
  const auto colon = address.rfind(':');
  if (address.starts_with("unix:") || colon == std::string::npos) return false;
  auto host = address.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (getaddrinfo(host.c_str(), address.substr(colon + 1).c_str(), &wanted, &found) != 0) return false;
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> entries(found, freeaddrinfo);
  const int fd = connect_to(*entries);
  if (fd < 0) return false;
  const bool http = answers_http(fd, address);
  close(fd);
  return http;
}

}  // namespace cli
