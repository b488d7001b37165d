#include "base/errands.h"

namespace base {

Errands::Errands(bool threads)
    : threads_(threads), loop_("an errand failed", threads, [this]() -> std::optional<core::Millis> {
        if (work()) return core::Millis(0);
        return std::nullopt;
      }) {
  loop_.start();
}

bool Errands::run(std::function<void()> errand, core::Millis patience) {
  if (!threads_) {
    errand();
    return true;
  }
  const auto one = std::make_shared<Errand>(Errand{std::move(errand)});
  std::unique_lock lock(mutex_);
  if (waiting_.size() >= kMostWaiting) return false;
  waiting_.push_back(one);
  loop_.wake();
  return done_.wait_for(lock, patience, [&] { return one->done; });
}

bool Errands::work() {
  std::unique_lock lock(mutex_);
  if (waiting_.empty()) return false;
  const auto one = waiting_.front();
  waiting_.pop_front();
  lock.unlock();
  one->body();
  lock.lock();
  one->done = true;
  done_.notify_all();
  return true;
}

}  // namespace base
