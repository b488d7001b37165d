#pragma once

#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <random>
#include <stdexcept>
#include <string>

namespace test {

/// A free TCP port that no other test takes for as long as this object lives, listened on or not: a daemon that is down
/// for a while finds its port again. It lies above the ports that Linux gives to clients and to whoever asks for any
/// (32768 to 60999), and is claimed by an abstract Unix socket of its number, which ends with the process.
class ClaimedPort {
 public:
  ClaimedPort() {
    std::uint32_t next = std::random_device()();
    for (int tried = 0; tried < kLast - kFirst + 1 && claim_ < 0; ++tried) {
      number_ = static_cast<std::uint16_t>(kFirst + next++ % (kLast - kFirst + 1));
      claim_ = claimed(number_);
    }
    if (claim_ < 0) throw std::runtime_error("every TCP port from 61000 to 65535 is taken");
  }
  ~ClaimedPort() { ::close(claim_); }
  ClaimedPort(const ClaimedPort&) = delete;
  ClaimedPort& operator=(const ClaimedPort&) = delete;

  std::uint16_t number() const { return number_; }
  std::string on(const std::string& host) const { return host + ":" + std::to_string(number_); }

 private:
  static constexpr int kFirst = 61000;
  static constexpr int kLast = 65535;

  /// The socket that claims the port; negative: somebody else has claimed it, or listens on it.
  static int claimed(std::uint16_t number) {
    const int claim = ::socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_un name{};
    name.sun_family = AF_UNIX;
    const auto text = "muster-test-port-" + std::to_string(number);
    std::memcpy(name.sun_path + 1, text.data(), text.size());
    const auto size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + text.size());
    if (::bind(claim, reinterpret_cast<const sockaddr*>(&name), size) == 0 && is_free(number)) return claim;
    ::close(claim);
    return -1;
  }

  static bool is_free(std::uint16_t number) {
    const int trial = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_ANY);
    address.sin_port = htons(number);
    const bool bound = ::bind(trial, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
    ::close(trial);
    return bound;
  }

  std::uint16_t number_ = 0;
  int claim_ = -1;
};

}  // namespace test
