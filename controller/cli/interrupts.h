#pragma once

#include <grpcpp/client_context.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>

namespace cli {

/// Ctrl-C. At once it ends the program with 130; after `gently()` the first one only cancels the call in progress and
/// wakes sleepers, so that the program can say what goes on without it. A second one always ends it.
///
/// One for the process, made before any other thread: it blocks SIGINT in all of them and waits for it in its own.
class Interrupts {
 public:
  static Interrupts& instance();

  void gently() { gently_ = true; }
  /// From now on Ctrl-C is the business of the programs that this one has started in its terminal.
  void leave_to_children() { left_to_children_ = true; }
  bool requested() const { return requested_; }
  /// False: interrupted meanwhile.
  bool sleep(std::chrono::milliseconds time);

  /// Cancels the call when the interrupt comes, or came already.
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
