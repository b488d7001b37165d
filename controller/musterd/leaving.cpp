#include "controller/musterd/leaving.h"

#include <spdlog/async.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <chrono>

namespace musterd {
namespace {

// The log has a thread of its own, and its disk may be what stands still.
void let_the_log_be_written() {
  constexpr auto kPatience = std::chrono::milliseconds(500);
  constexpr auto kBetweenLooks = std::chrono::milliseconds(10);
  const auto end = std::chrono::steady_clock::now() + kPatience;
  const auto lines = spdlog::thread_pool();
  while (lines != nullptr && lines->queue_size() > 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kBetweenLooks);
  }
  std::this_thread::sleep_for(kBetweenLooks);  // the last line has left the queue, and is being written
}

}  // namespace

Leaving::~Leaving() {
  {
    const std::lock_guard lock(mutex_);
    done_ = true;
  }
  done_changed_.notify_all();
  if (watcher_.joinable()) watcher_.join();
}

void Leaving::watch() {
  std::unique_lock lock(mutex_);
  if (done_changed_.wait_for(lock, limit_, [this] { return done_; })) return;
  spdlog::critical("musterd has not left after {} s: it is {}; it ends here, and running attempts go on",
                   static_cast<double>(limit_.count()) / 1000, step_);
  let_the_log_be_written();
  ::_exit(kExitNotLeft);
}

}  // namespace musterd
