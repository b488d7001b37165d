#pragma once
#include <chrono>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

namespace fsdp::watch {

/// Says for whom a call waits, on a thread of its own: after `late_after`, and again each time after twice the time,
/// until it is destroyed.
class LateWord {
 public:
  /// `say` gets "rank 0 has not come for 10 s: <what>".
  LateWord(std::chrono::milliseconds late_after, std::function<void(const std::string&)> say, std::string whom,
           std::string what)
      : thread_([this, late_after, say = std::move(say), whom = std::move(whom), what = std::move(what)] {
          std::unique_lock<std::mutex> lock(mutex_);
          for (auto waited = late_after; !changed_.wait_for(lock, waited, [this] { return ends_; }); waited *= 2) {
            waited_ += waited;
            say(whom + " has not come for " + std::to_string(waited_.count() / 1000) + " s: " + what);
          }
        }) {}
  ~LateWord() {
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      ends_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }
  LateWord(const LateWord&) = delete;
  LateWord& operator=(const LateWord&) = delete;

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  bool ends_ = false;
  std::chrono::milliseconds waited_{};
  std::thread thread_;  // last, because it uses the others
};

}  // namespace fsdp::watch
