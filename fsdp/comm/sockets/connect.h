#pragma once
#include <chrono>
#include <string>
#include <utility>

/// Connections over TCP between ranks. All functions throw c10::Error with address and reason.
namespace fsdp::net {

/// An owned socket until released.
class Socket {
 public:
  explicit Socket(int fd = -1) : fd_(fd) {}
  ~Socket();
  Socket(Socket&& other) noexcept : fd_(other.release()) {}
  Socket& operator=(Socket&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  int get() const { return fd_; }
  int release() { return std::exchange(fd_, -1); }

 private:
  int fd_;
};

using Deadline = std::chrono::steady_clock::time_point;

/// Returns the milliseconds until the deadline, as poll() takes them.
int left_ms(Deadline deadline);

/// True if one of the `events` of poll() comes until the deadline.
bool is_ready(int fd, short events, Deadline deadline);
/// Returns when one of the `events` of poll() has come. `what` says what for.
void await(int fd, short events, Deadline deadline, const char* what);

/// A socket that listens on any free port of `host`, a name or address of this machine.
Socket listen_at(const std::string& host);
/// The port of a listening socket.
std::string port_of(int fd);
Socket connect_to(const std::string& host, const std::string& port, std::chrono::milliseconds timeout);
/// Short messages leave at once, and a connection to a node that is gone ends some day.
void set_options(int fd);

}  // namespace fsdp::net
