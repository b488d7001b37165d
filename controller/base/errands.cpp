#include "base/errands.h"

namespace runtime {

Errands::Errands(bool threads) : threads_(threads) {
  if (threads_) thread_ = std::thread([this] { work(); });
}

Errands::~Errands() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
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
  wake_.notify_one();
  return done_.wait_for(lock, patience, [&] { return one->done; });
}

void Errands::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return closed_ || !waiting_.empty(); });
    if (closed_) return;
    const auto one = waiting_.front();
    waiting_.pop_front();
    lock.unlock();
    one->body();
    lock.lock();
    one->done = true;
    done_.notify_all();
  }
}

}  // namespace runtime
