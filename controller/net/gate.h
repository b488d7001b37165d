#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>

#include "base/fd.h"
#include "controller/net/connections.h"
#include "controller/net/listener.h"
#include "controller/net/newcomer.h"

namespace net {

/// An entrance stands before a server: nobody reaches the server without having said something that can be judged,
/// within a budget of bytes and of time that is counted from the arrival. Gate is the entrance of gRPC, HttpGate the
/// dashboard's.
///
/// Everybody is let in, and fights for a place in the WaitingRoom. Who has said enough is judged: it is handed over
/// with everything that was read, or answered and closed. Everybody who is turned away, for whatever reason, is counted
/// in Crowd.
///
/// Everything runs in the thread of the port's Listener, so a crowd costs at most one core, and everybody who is here
/// is looked at before more are accepted. close_all() may be called from any thread once the Listener has stopped.
class Entrance : public Door {
 public:
  void enter(int socket, Time now) override;
  void tidy(Time now) override;
  bool has_to_tidy() const override { return !guests_.empty() || connections_->has_to_tidy(); }
  int events() const override { return events_.get(); }
  void work(Time now) override;
  void close_all() {
    guests_.clear();
    connections_->set_waiting(port_, 0);
  }

 protected:
  struct Guest {
    base::Fd socket;
    Address from;
    std::unique_ptr<FirstWords> words;
  };

  Entrance(std::shared_ptr<Connections> connections, Port port, std::chrono::milliseconds patience);
  ~Entrance() override { close_all(); }

  /// Words that are said to everybody at once; empty: none.
  virtual std::string greeting() const { return {}; }
  virtual std::unique_ptr<FirstWords> listen() const = 0;
  /// Somebody has said enough. Calls let_in() and takes the socket, or refuse(). Whose socket is still there afterwards
  /// is closed.
  virtual void judge(Guest& guest, Time now) = 0;
  /// The last word to somebody who is turned away without a judgement; empty: none.
  virtual std::string goodbye(Crowd::Why why) const = 0;

  /// The guest showed a token that counts. Its socket is the callee's from now on, and is watched no longer.
  int let_in(Guest& guest, Time now) {
    room_.know(guest.from, now);
    return hand_over(guest);
  }
  /// Takes the guest's socket as let_in() does, for somebody without a token.
  int hand_over(Guest& guest);
  /// Answers, and counts it.
  void refuse(Guest& guest, Crowd::Why why, const std::string& answer, Time now);
  Connections& connections() { return *connections_; }

 private:
  using Id = WaitingRoom::Id;
  using Guests = std::unordered_map<Id, Guest>;

  void read(Id id, Time now);
  void send_away(Guests::iterator guest, Crowd::Why why, Time now);
  void forget(Guests::iterator guest) {
    room_.leave(guest->first);
    guests_.erase(guest);
  }
  void tell_how_many() { connections_->set_waiting(port_, guests_.size()); }

  const std::shared_ptr<Connections> connections_;
  const Port port_;
  base::Fd events_;
  WaitingRoom room_;
  Guests guests_;
  Id next_ = 1;
};

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

/// The words that one connection to the dashboard's port has said before its first request was judged: HTTP/1 up to the
/// empty line that ends a request's headers. It is kCalls once the server can answer: the line is there, or the first
/// byte begins no request, which the server refuses. It is kMisbehaves when `most_bytes` have come without that line.
class HttpHead final : public FirstWords {
 public:
  explicit HttpHead(std::size_t most_bytes) : most_(most_bytes) {}

  State take(std::string_view bytes) override;
  std::size_t room() const override { return most_ - said_.size(); }
  const std::string& said() const override { return said_; }

 private:
  const std::size_t most_;
  State state_ = State::kSilent;
  std::string said_;
};

/// The entrance of the dashboard's HTTP server: nobody reaches it before the headers of a request. Whoever shows a
/// valid token or session in them is one of the people, and gets a place of theirs. Anybody else may ask too (pages,
/// log in), and gets a place among the strangers. For want of a place the answer is 503.
class HttpGate final : public Entrance {
 public:
  struct Rules {
    std::size_t most_bytes = 0;             // of a request's headers
    std::chrono::milliseconds patience{0};  // with them, from the arrival on
    std::function<bool(const std::string& head)> is_a_persons;
    /// The socket belongs to the callee. `said`: what was read from it.
    std::function<void(int socket, const std::string& said)> hand_over;
  };

  HttpGate(std::shared_ptr<Connections> connections, Rules rules);

 protected:
  std::unique_ptr<FirstWords> listen() const override { return std::make_unique<HttpHead>(rules_.most_bytes); }
  void judge(Guest& guest, Time now) override;
  std::string goodbye(Crowd::Why why) const override;

 private:
  const Rules rules_;
};

}  // namespace net
