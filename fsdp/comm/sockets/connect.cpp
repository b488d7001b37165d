#include "fsdp/comm/sockets/connect.h"

#include <c10/util/Exception.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

namespace fsdp::net {
namespace {

constexpr int kMaxWaiting = 1024;  // connections that were not accepted yet

addrinfo* resolve(const std::string& host, const std::string& port) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int failed = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  TORCH_CHECK(failed == 0, "connections of ranks: ", host, " port ", port, ": ", ::gai_strerror(failed));
  return found;
}

}  // namespace

Socket::~Socket() {
  if (fd_ >= 0) ::close(fd_);
}

int left_ms(Deadline deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 1 << 30));
}

bool is_ready(int fd, short events, Deadline deadline) {
  pollfd one{fd, events, 0};
  int ready = 0;
  do ready = ::poll(&one, 1, left_ms(deadline));
  while (ready < 0 && errno == EINTR);
  return ready > 0;
}

void await(int fd, short events, Deadline deadline, const char* what) {
  TORCH_CHECK(is_ready(fd, events, deadline), "connections of ranks: ", what, ": nobody within the timeout");
}

std::string port_of(int fd) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char port[NI_MAXSERV] = "";
  TORCH_CHECK(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
                  ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, nullptr, 0, port, sizeof port,
                                NI_NUMERICSERV) == 0,
              "connections of ranks: no port of the own socket: ", std::strerror(errno));
  return port;
}

Socket listen_at(const std::string& host) {
  addrinfo* const found = resolve(host, "0");
  Socket socket{::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const bool listens = socket.get() >= 0 && ::bind(socket.get(), found->ai_addr, found->ai_addrlen) == 0 &&
                       ::listen(socket.get(), kMaxWaiting) == 0;
  ::freeaddrinfo(found);
  TORCH_CHECK(listens, "connections of ranks: cannot listen at ", host, ": ", std::strerror(errno));
  return socket;
}

Socket connect_to(const std::string& host, const std::string& port, std::chrono::milliseconds timeout) {
  addrinfo* const found = resolve(host, port);
  Socket socket{::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0)};
  const timeval patience{.tv_sec = timeout.count() / 1000 + 1, .tv_usec = 0};  // also of connect()
  const bool connects = socket.get() >= 0 &&
                        ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0 &&
                        ::connect(socket.get(), found->ai_addr, found->ai_addrlen) == 0;
  ::freeaddrinfo(found);
  TORCH_CHECK(connects, "connections of ranks: cannot connect to ", host, " port ", port, ": ", std::strerror(errno));
  return socket;
}

void set_options(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

}  // namespace fsdp::net
