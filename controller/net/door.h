#pragma once

#include <chrono>
#include <cstddef>

namespace net {

/// Who comes in at a listening port. Its Listener calls everything from one thread.
class Door {
 public:
  using Time = std::chrono::steady_clock::time_point;

  virtual ~Door() = default;
  /// True if one more connection may be accepted now. `waiting`: how many connections wait for accept().
  virtual bool make_room(Time now, std::size_t waiting) = 0;
  /// A socket was accepted. A door that has a descriptor of events owns the socket from now on.
  virtual void enter(int socket, Time now) = 0;
  /// Called at least once a second.
  virtual void tidy(Time now) = 0;
  /// A descriptor that is readable while work() has something to do; -1: none.
  virtual int events() const { return -1; }
  /// Must not wait.
  virtual void work(Time now) { (void)now; }
};

}  // namespace net
