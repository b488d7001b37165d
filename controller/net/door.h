#pragma once

#include <chrono>

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

}  // namespace net
