#include "fsdp/comm/sockets/connect.h"

#include <c10/util/Exception.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

namespace fsdp::net {
namespace {

constexpr int kMaxWaiting = 4096;  // connections that were not accepted yet
constexpr const char* kConnections = "connections of ranks: ";

/// The milliseconds until the deadline, as poll() takes them.
int left_ms(Deadline deadline) {
  const auto left =
      std::chrono::duration_cast<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now()).count();
  return static_cast<int>(std::clamp<long long>(left, 0, 1 << 30));
}

}  // namespace

bool is_ready(int fd, short events, Deadline deadline) {
  pollfd one{fd, events, 0};
  int ready = 0;
  do ready = ::poll(&one, 1, left_ms(deadline));
  while (ready < 0 && errno == EINTR);
  return ready > 0;
}

Addresses resolve(const std::string& host, const std::string& port, const std::string& whose) {
  addrinfo hints{}, *found = nullptr;
  hints.ai_socktype = SOCK_STREAM;
  const int failed = ::getaddrinfo(host.c_str(), port.c_str(), &hints, &found);
  TORCH_CHECK(failed == 0, whose, ::gai_strerror(failed));
  return {found, &::freeaddrinfo};
}

base::Fd listen_on(const addrinfo& address, bool reuses) {
  base::Fd socket(::socket(address.ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const int on = reuses ? 1 : 0;
  const bool listens = socket && ::setsockopt(socket.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on) == 0 &&
                       ::bind(socket.get(), address.ai_addr, address.ai_addrlen) == 0 &&
                       ::listen(socket.get(), kMaxWaiting) == 0;
  return listens ? std::move(socket) : base::Fd();
}

base::Fd listen_at(const std::string& host) {
  base::Fd socket = listen_on(*resolve(host, "0", kConnections + host + " port 0: "), /*reuses=*/false);
  TORCH_CHECK(socket, kConnections, "cannot listen at ", host, ": ", std::strerror(errno));
  return socket;
}

std::string port_of(int fd, const std::string& whose) {
  sockaddr_storage address{};
  socklen_t length = sizeof address;
  char port[NI_MAXSERV] = "";
  TORCH_CHECK(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length) == 0 &&
                  ::getnameinfo(reinterpret_cast<sockaddr*>(&address), length, nullptr, 0, port, sizeof port,
                                NI_NUMERICSERV) == 0,
              whose, std::strerror(errno));
  return port;
}

base::Fd connect_to(const std::string& host, const std::string& port, std::chrono::milliseconds timeout) {
  const Addresses found = resolve(host, port, kConnections + host + " port " + port + ": ");
  base::Fd socket(::socket(found->ai_family, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const timeval patience{.tv_sec = timeout.count() / 1000 + 1, .tv_usec = 0};  // also of connect()
  const bool connects = socket &&
                        ::setsockopt(socket.get(), SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience) == 0 &&
                        ::connect(socket.get(), found->ai_addr, found->ai_addrlen) == 0;
  TORCH_CHECK(connects, kConnections, "cannot connect to ", host, " port ", port, ": ", std::strerror(errno));
  return socket;
}

void set_options(int fd) {
  const int on = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  ::setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
}

}  // namespace fsdp::net
