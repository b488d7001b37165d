#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "controller/common/loop.h"

namespace net {

/// How to probe one port.
struct ProbedPort {
  enum class Answer { kMore, kRight, kWrong };

  std::string name;  // "gRPC"
  std::string host;  // the address it listens on
  int port = 0;
  std::string hello;                                    // the first bytes that the probe sends
  std::function<Answer(const std::string& got)> judge;  // what the bytes that came so far are
  std::function<void()> reopen;
  /// True while strangers crowd at the port. Then nothing follows from a probe that comes to nothing. Empty: never.
  std::function<bool()> is_crowded;
};

/// Makes a call with people's token to a method that there is not. The call passes the gate like one of people's, and
/// gRPC answers it by itself, so a hanging store or disk does not matter.
ProbedPort grpc_port(std::string host, int port, const std::string& token, std::function<void()> reopen);
/// Sends a request with people's token and an address that is malformed. It passes the entrance like one of people's,
/// and the server refuses it by itself (400), so a hanging store or disk does not matter. The entrance's own answer is
/// none of the server.
ProbedPort http_port(std::string host, int port, const std::string& token, std::function<void()> reopen);

/// Why the port does not answer; empty: it answers. Tries until `patience` is over, or only once.
std::string why_silent(const ProbedPort& port, std::chrono::milliseconds patience, bool once = false);

struct ProbeTimes {
  std::chrono::milliseconds every{60'000};
  std::chrono::milliseconds again{5'000};      // after a failure
  std::chrono::milliseconds patience{10'000};  // of one probe
};

/// Connects to musterd's own ports from time to time, as a client would. A port that does not answer is opened again.
/// In a crowd of strangers it is left as it is: the port works, and whoever is connected would notice.
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
  common::Loop loop_;
};

}  // namespace net
