#include "agent/supervisor/socket_path.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdio>

#include "agent/supervisor/attempt_folder.h"

namespace agent::supervisor {
namespace {

using base::Fd;

constexpr int kBacklog = 16;

sockaddr_un address_in(int folder) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "/proc/self/fd/%d/%s", folder, kSocketFile);
  return address;
}

Fd make_socket() {
  return Fd(::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
}

}  // namespace

Fd listen_in(int folder) {
  auto socket = make_socket();
  if (!socket) throw_errno("cannot make a unix socket");
  if (::unlinkat(folder, kSocketFile, 0) != 0 && errno != ENOENT) throw_errno("cannot remove a stale supervisor.sock");
  const auto address = address_in(folder);
  const auto umask_before = ::umask(0177);
  const int bound = ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address);
  ::umask(umask_before);
  if (bound != 0) throw_errno("cannot create supervisor.sock (the data folder's file system must allow sockets)");
  if (::listen(socket.get(), kBacklog) != 0) throw_errno("cannot listen on supervisor.sock");
  return socket;
}

Fd connect_in(int folder) {
  auto socket = make_socket();
  if (!socket) return {};
  const auto address = address_in(folder);
  if (::connect(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0) return socket;
  return {};
}

}  // namespace agent::supervisor
