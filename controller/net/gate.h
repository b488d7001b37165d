#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>

#include "net/connections.h"
#include "net/door.h"
#include "net/newcomer.h"
#include "net/waiting_room.h"
#include "os/fd.h"

namespace net {

/// What stands before a gRPC server: nobody reaches gRPC before a call with a valid token.
///
/// gRPC 1.51 bounds neither the memory, nor the streams, nor the CPU time of a connection that never shows a token. So
/// the gate greets each connection itself (SETTINGS), reads up to the first call within the budget of Newcomer, and
/// asks `judge`. An accepted connection goes to gRPC with everything that was read, and the gate forgets it. Everybody
/// else gets an answer of the gate and is closed:
///   - a call without a valid token: its status, as a gRPC server would tell it;
///   - over the budget, or no HTTP/2: nothing;
///   - for want of a place (WaitingRoom), or after kPatience: GOAWAY, so that the client knows that no call was begun.
///
/// Everything runs in the thread of the port's Listener, so a crowd costs at most one core, and everybody who is here
/// is looked at before more are accepted. close_all() may be called from any thread once the Listener has stopped.
class Gate final : public Door {
 public:
  /// How many calls a connection may have open at once, until gRPC says its own number.
  static constexpr std::uint32_t kMostStreams = 100;

  struct Verdict {
    std::optional<Party> party;  // nullopt: refused
    std::string whose;           // of a person: the name under which connections are counted; empty: the address
    int status = 0;              // of a refusal: gRPC's code and text
    std::string text;
  };
  struct Rules {
    std::string message_of;  // see Newcomer
    std::function<Verdict(const FirstCall& call)> judge;
    /// The socket belongs to the callee. `said`: what was read from it.
    std::function<void(int socket, const std::string& said, Party party)> hand_over;
  };

  Gate(std::shared_ptr<Connections> connections, Rules rules);
  ~Gate() override { close_all(); }
  Gate(const Gate&) = delete;
  Gate& operator=(const Gate&) = delete;

  bool make_room(Time, std::size_t) override { return true; }
  void enter(int socket, Time now) override;
  void tidy(Time now) override;
  int events() const override { return events_.get(); }
  void work(Time now) override;
  void close_all();

 private:
  using Id = WaitingRoom::Id;
  struct Guest {
    Guest(int accepted, const Address& peer, std::string_view message_of)
        : socket(accepted), from(peer), newcomer(message_of) {}
    os::Fd socket;
    Address from;
    Newcomer newcomer;
  };
  using Guests = std::unordered_map<Id, Guest>;

  void read(Id id, Time now);
  void judge(Guests::iterator guest, Time now);
  void send_away(Id id, Time now, bool for_want_of_a_place);
  void forget(Guests::iterator guest);

  const std::shared_ptr<Connections> connections_;
  const Rules rules_;
  os::Fd events_;
  WaitingRoom room_;
  Guests guests_;
  Id next_ = 1;
};

}  // namespace net
