#include "agent/supervisor/attempt_folder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>

#include <cerrno>
#include <cstdio>
#include <stdexcept>
#include <system_error>

namespace agent::supervisor {

namespace {

using base::Fd;

constexpr std::size_t kMaxFileBytes = 64 << 20;  // far more than any environment or list of facts

}  // namespace

void throw_errno(const std::string& what) {
  throw std::system_error(errno, std::generic_category(), what);
}

Fd open_folder(const std::filesystem::path& folder) {
  Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd) throw_errno("cannot open folder " + folder.string());
  return fd;
}

std::optional<Fd> try_lock(int folder) {
  Fd fd(::openat(folder, kLockFile, O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!fd) throw_errno("cannot open the attempt's lock file");
  if (::flock(fd.get(), LOCK_EX | LOCK_NB) == 0) return fd;
  if (errno == EWOULDBLOCK) return std::nullopt;
  throw_errno("cannot lock the attempt's lock file");
}

std::optional<std::string> read_file_at(int folder, const char* name) {
  Fd fd(::openat(folder, name, O_RDONLY | O_CLOEXEC));
  if (!fd) {
    if (errno == ENOENT) return std::nullopt;
    throw_errno(std::string("cannot open ") + name);
  }
  std::string text;
  char buffer[16384];
  for (;;) {
    const auto count = ::read(fd.get(), buffer, sizeof buffer);
    if (count == 0) return text;
    if (text.size() > kMaxFileBytes) throw std::runtime_error(std::string(name) + " is too large to be muster's");
    if (count > 0) {
      text.append(buffer, static_cast<std::size_t>(count));
    } else if (errno != EINTR) {
      throw_errno(std::string("cannot read ") + name);
    }
  }
}

std::optional<protocol::LocalLaunch> read_local_launch(int folder) {
  const auto text = read_file_at(folder, protocol::kLocalLaunchFile);
  return text ? std::optional(protocol::parse_local_launch(*text)) : std::nullopt;
}

protocol::Status read_status(int folder) {
  return protocol::parse_status(read_file_at(folder, protocol::kStatusFile).value_or(""));
}

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
