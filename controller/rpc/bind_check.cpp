#include "rpc/bind_check.h"

#include <netdb.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <memory>

namespace rpc {
namespace {

std::string remedy(int error) {
  switch (error) {
    case EADDRINUSE:
      return "the address is in use: stop the process that listens there (another musterd?) or choose another port";
    case EADDRNOTAVAIL:
      return "no such address on this machine: listen on 127.0.0.1 or on one that `ip address` shows";
    case EACCES:
      return "not allowed: ports below 1024 need privileges; choose a higher one";
    default:
      return std::string(std::strerror(error)) + ": choose another address";
  }
}

/// 0, or the errno that binding `to` ends with.
int try_bind(const addrinfo& to) {
  const int fd = ::socket(to.ai_family, to.ai_socktype | SOCK_CLOEXEC, to.ai_protocol);
  // A kernel without this family: gRPC leaves it out too.
  if (fd < 0) return 0;
  const int yes = 1;
  ::setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof yes);
  if (to.ai_family == AF_INET6) ::setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &yes, sizeof yes);
  // Of two sockets with SO_REUSEADDR only the second listen() fails.
  const bool bound = ::bind(fd, to.ai_addr, to.ai_addrlen) == 0 && ::listen(fd, 1) == 0;
  const int error = bound ? 0 : errno;
  ::close(fd);
  return error;
}

}  // namespace

std::string why_not_bindable(const std::string& address) {
  const auto prefix = "cannot listen on " + address + ": ";
  const auto colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) {
    return prefix + "want host:port such as 127.0.0.1:7000";
  }
  std::string host = address.substr(0, colon);
  if (host.size() > 2 && host.front() == '[' && host.back() == ']') host = host.substr(1, host.size() - 2);

  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  addrinfo* list = nullptr;
  if (const int error = ::getaddrinfo(host.c_str(), address.c_str() + colon + 1, &hints, &list); error != 0) {
    return prefix + ::gai_strerror(error) + "; want host:port such as 127.0.0.1:7000";
  }
  const std::unique_ptr<addrinfo, decltype(&::freeaddrinfo)> owner(list, ::freeaddrinfo);
  int missing = 0;
  bool bound = false;
  for (const addrinfo* at = list; at != nullptr; at = at->ai_next) {
    const int error = try_bind(*at);
    // "localhost" may resolve to ::1 on a machine without IPv6: one address of several may be missing.
    if (error == EADDRNOTAVAIL) {
      missing = error;
    } else if (error != 0) {
      return prefix + remedy(error);
    } else {
      bound = true;
    }
  }
  return bound || missing == 0 ? "" : prefix + remedy(missing);
}

}  // namespace rpc
