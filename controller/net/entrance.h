#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

#include "base/fd.h"
#include "controller/net/connections.h"
#include "controller/net/crowd.h"
#include "controller/net/newcomer.h"

namespace net {

/// Who comes in at a listening port. Its Listener calls everything from one thread.
class Door {
 public:
  using Time = std::chrono::steady_clock::time_point;

  virtual ~Door() = default;
  /// A socket was accepted. The door owns it from now on.
  virtual void enter(int socket, Time now) = 0;
  /// Called at least once a second.
  virtual void tidy(Time now) = 0;
  /// A descriptor that is readable while work() has something to do.
  virtual int events() const = 0;
  /// Must not wait.
  virtual void work(Time now) = 0;
};

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
  int events() const override { return events_.get(); }
  void work(Time now) override;
  void close_all();

  Entrance(const Entrance&) = delete;
  Entrance& operator=(const Entrance&) = delete;

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
  int let_in(Guest& guest, Time now);
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
  void forget(Guests::iterator guest);
  void tell_how_many();

  const std::shared_ptr<Connections> connections_;
  const Port port_;
  base::Fd events_;
  WaitingRoom room_;
  Guests guests_;
  Id next_ = 1;
};

}  // namespace net
