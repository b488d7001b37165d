#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "base/loop.h"

namespace net {

/// How to probe one port.
struct ProbedPort {
  std::string name;  // "gRPC"
  std::string host;  // the address it listens on
  int port = 0;
  std::string hello;   // the first bytes that the probe sends
  std::string answer;  // the first bytes of a right answer; '?' is any byte
  std::function<void()> reopen;
};

/// Sends the greeting of an HTTP/2 client and expects the server's SETTINGS. gRPC answers by itself, so an answer tells
/// only that connections are accepted and served. A hanging store or disk does not matter.
ProbedPort grpc_port(std::string host, int port, std::function<void()> reopen);
/// Sends a malformed request. The HTTP parser refuses it, so a hanging store or disk does not matter.
ProbedPort http_port(std::string host, int port, std::function<void()> reopen);

/// Why the port does not answer; empty: it answers. Tries until `patience` is over, or only once.
std::string why_silent(const ProbedPort& port, std::chrono::milliseconds patience, bool once = false);

struct ProbeTimes {
  std::chrono::milliseconds every{60'000};
  std::chrono::milliseconds again{5'000};      // after a failure
  std::chrono::milliseconds patience{10'000};  // of one probe
};

/// Connects to musterd's own ports from time to time, as a client would. A port that does not answer is opened again.
/// If a port fails kMostFailures times in a row, `give_up` is called once with the reason. The process should then end,
/// so that its supervisor starts it again.
class SelfProbe {
 public:
  static constexpr int kMostFailures = 3;

  SelfProbe(std::vector<ProbedPort> ports, ProbeTimes times, std::function<void(const std::string&)> give_up);

 private:
  std::optional<core::Millis> step();

  const std::vector<ProbedPort> ports_;
  const ProbeTimes times_;
  const std::function<void(const std::string&)> give_up_;
  std::vector<int> failures_;
  base::Loop loop_;
};

}  // namespace net
