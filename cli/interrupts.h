#pragma once

#include <grpcpp/client_context.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace cli {

/// Handles Ctrl-C. It ends the program with 130. After `gently()` the first Ctrl-C only cancels the running call and
/// wakes sleepers, so that the program can say that the job goes on. A second Ctrl-C always ends the program.
///
/// There is one object for the process. Create it before any other thread: it blocks SIGINT in all threads, and a
/// thread of its own waits for SIGINT.
class Interrupts {
 public:
  static Interrupts& instance();

  void gently() { gently_ = true; }
  /// From now on this program ignores Ctrl-C. The programs that it has started in its terminal handle it.
  void leave_to_children() { left_to_children_ = true; }
  bool requested() const { return requested_; }
  /// Returns false if it was interrupted.
  bool sleep(std::chrono::milliseconds time);

  /// Cancels its call when Ctrl-C is pressed, or if it was pressed before.
  class Scope {
   public:
    explicit Scope(grpc::ClientContext& context);
    ~Scope();
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;
  };

 private:
  Interrupts();
  void on_interrupt();

  std::atomic<bool> gently_{false};
  std::atomic<bool> left_to_children_{false};
  std::atomic<bool> requested_{false};
  std::mutex mutex_;
  std::condition_variable woken_;
  grpc::ClientContext* call_ = nullptr;
};

}  // namespace cli
