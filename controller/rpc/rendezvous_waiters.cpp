#include "rpc/rendezvous_waiters.h"

namespace rpc {

RendezvousWaiters::RendezvousWaiters(std::size_t most_waiting)
    : most_waiting_(most_waiting), timer_([this] { watch_time(); }) {}

RendezvousWaiters::~RendezvousWaiters() {
  close();
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
  }
  wake_.notify_all();
  timer_.join();
}

std::uint64_t RendezvousWaiters::news() const {
  std::lock_guard lock(mutex_);
  return news_;
}

RendezvousWaiters::Waiting RendezvousWaiters::wait(const core::AttemptKey& attempt, std::uint64_t news_seen,
                                                   Clock::time_point until, std::function<void()> on_news,
                                                   std::function<void()> on_time_out) {
  {
    std::lock_guard lock(mutex_);
    if (news_ != news_seen) return Waiting::kNewsSince;
    if (waiters_.size() >= most_waiting_) return Waiting::kFull;
    if (closed_) until = Clock::now();
    waiters_.emplace(attempt, Waiter{until, std::move(on_news), std::move(on_time_out)});
  }
  wake_.notify_all();
  return Waiting::kYes;
}

void RendezvousWaiters::announce(const core::AttemptKey& attempt) {
  std::vector<std::function<void()>> calls;
  {
    std::lock_guard lock(mutex_);
    ++news_;
    const auto [begin, end] = waiters_.equal_range(attempt);
    for (auto at = begin; at != end; ++at) calls.push_back(std::move(at->second.on_news));
    waiters_.erase(begin, end);
  }
  for (const auto& call : calls) call();
}

void RendezvousWaiters::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
    for (auto& [key, waiter] : waiters_) waiter.until = Clock::now();
  }
  wake_.notify_all();
}

void RendezvousWaiters::watch_time() {
  std::unique_lock lock(mutex_);
  while (!ending_ || !waiters_.empty()) {
    const auto now = Clock::now();
    auto next = now + kPatience;
    std::vector<std::function<void()>> calls;
    for (auto at = waiters_.begin(); at != waiters_.end();) {
      if (at->second.until <= now) {
        calls.push_back(std::move(at->second.on_time_out));
        at = waiters_.erase(at);
      } else {
        next = std::min(next, at->second.until);
        ++at;
      }
    }
    if (calls.empty()) {
      wake_.wait_until(lock, next);
      continue;
    }
    lock.unlock();
    for (const auto& call : calls) call();
    lock.lock();
  }
}

}  // namespace rpc
