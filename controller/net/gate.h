#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "controller/net/entrance.h"
#include "controller/net/newcomer.h"

namespace net {

/// The entrance of a gRPC server: nobody reaches gRPC before a call with a valid token.
///
/// gRPC 1.51 bounds neither the memory, nor the streams, nor the CPU time of a connection that never shows a token. So
/// the gate greets each connection itself (SETTINGS), reads up to the first call within the budget of Newcomer, and
/// asks `judge`. An accepted connection goes to gRPC with everything that was read, and the gate forgets it. Everybody
/// else gets an answer of the gate and is closed:
///   - a call without a valid token: its status, as a gRPC server would tell it;
///   - over the budget, or no HTTP/2: nothing;
///   - for want of a place (WaitingRoom), or after kPatience: GOAWAY, so that the client knows that no call was begun.
class Gate final : public Entrance {
 public:
  /// How many calls a connection may have open at once, until gRPC says its own number.
  static constexpr std::uint32_t kMostStreams = 100;
  static constexpr std::chrono::seconds kPatience{10};

  struct Verdict {
    std::optional<Party> party;  // nullopt: refused
    std::string whose;           // the name under which connections are counted, see Caller; empty: the address
    int status = 0;              // of a refusal: gRPC's code and text
    std::string text;
    std::uint32_t ranks = 0;  // of a rank, see Caller
  };
  struct Rules {
    std::string message_of;  // see Newcomer
    std::function<Verdict(const FirstCall& call)> judge;
    /// The socket belongs to the callee. `first`: what was read from it.
    std::function<void(int socket, const Newcomer& first, Party party)> hand_over;
  };

  Gate(std::shared_ptr<Connections> connections, Rules rules);

 protected:
  std::string greeting() const override;
  std::unique_ptr<FirstWords> listen() const override { return std::make_unique<Newcomer>(rules_.message_of); }
  void judge(Guest& guest, Time now) override;
  std::string goodbye(Crowd::Why why) const override;

 private:
  const Rules rules_;
};

}  // namespace net
