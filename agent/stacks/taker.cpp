#include "agent/stacks/taker.h"

#include <cstdio>
#include <exception>
#include <system_error>
#include <utility>

#include "base/signals_blocked.h"

namespace agent::stacks {

Taker::~Taker() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void Taker::ask(std::uint64_t number, std::vector<Rank> ranks) {
  std::lock_guard lock(mutex_);
  if (number <= newest_) return;
  newest_ = number;
  waits_ = true;
  ranks_ = std::move(ranks);
  wake_.notify_all();
  if (thread_.joinable()) return;
  try {
    const base::SignalsBlocked quiet;  // signals are the main thread's
    thread_ = std::thread([this] { run(); });
  } catch (const std::system_error& error) {  // the ranks run on without
    std::fprintf(stderr, "muster: nobody takes the stacks of the ranks: %s\n", error.what());
  }
}

void Taker::run() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    wake_.wait(lock, [this] { return closed_ || waits_; });
    if (!std::exchange(waits_, false) || closed_) continue;
    const auto number = newest_;
    const auto ranks = ranks_;
    lock.unlock();
    try {
      const auto texts = take_stacks(ranks);
      for (std::size_t i = 0; i < ranks.size(); ++i) {
        if (!texts[i].empty()) keep_(number, ranks[i].rank, texts[i]);
      }
    } catch (const std::exception& error) {
      std::fprintf(stderr, "muster: the stacks of the ranks could not be taken: %s\n", error.what());
    }
    lock.lock();
  }
}

}  // namespace agent::stacks
