#include "os/patience.h"

#include <signal.h>

#include <atomic>
#include <future>
#include <system_error>
#include <thread>

namespace os {
namespace {

std::atomic<int> begun{0};

/// Signals are for the threads that wait for them.
class NoSignals {
 public:
  NoSignals() {
    sigset_t all;
    ::sigfillset(&all);
    ::pthread_sigmask(SIG_SETMASK, &all, &before_);
  }
  ~NoSignals() { ::pthread_sigmask(SIG_SETMASK, &before_, nullptr); }
  NoSignals(const NoSignals&) = delete;
  NoSignals& operator=(const NoSignals&) = delete;

 private:
  sigset_t before_{};
};

}  // namespace

bool run_within(std::chrono::milliseconds patience, std::function<void()> task) {
  if (begun.fetch_add(1) >= kMostStuck) {
    --begun;
    return false;
  }
  const auto ended = std::make_shared<std::promise<void>>();
  auto end = ended->get_future();
  try {
    const NoSignals quiet;
    std::thread([ended, task = std::move(task)] {
      task();
      --begun;
      ended->set_value();
    }).detach();
  } catch (const std::system_error&) {  // no room for a thread
    --begun;
    return false;
  }
  return end.wait_for(patience) == std::future_status::ready;
}

}  // namespace os
