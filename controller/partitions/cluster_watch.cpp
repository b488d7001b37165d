#include "partitions/cluster_watch.h"

#include <spdlog/spdlog.h>

#include "executors/executor.h"

namespace runtime {

ClusterWatch::ClusterWatch(Executor& executor, Clock& clock, bool threads)
    : executor_(executor), clock_(clock), threads_(threads) {}

ClusterWatch::~ClusterWatch() {
  close();
}

void ClusterWatch::start() {
  if (!threads_) return;
  std::lock_guard lock(mutex_);
  running_ = true;
  thread_ = std::thread([this] { run(); });
}

void ClusterWatch::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify_all();
  news_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void ClusterWatch::run() {
  while (true) {
    {
      std::unique_lock lock(mutex_);
      wake_.wait_for(lock, kInterval, [&] { return closed_ || wanted_; });
      if (closed_) return;
      wanted_ = false;
    }
    try {
      refresh();
    } catch (const std::exception& error) {
      spdlog::error("what Slurm says of its partitions could not be used: {}", error.what());
    }
  }
}

void ClusterWatch::refresh() {
  std::uint64_t round = 0;
  {
    std::lock_guard lock(mutex_);
    round = ++begun_;
  }
  const auto asked_at = clock_.monotonic();
  auto heard = executor_.cluster();
  {
    std::lock_guard lock(mutex_);
    answered_ = round;
    auto next = heard ? *std::move(heard) : ClusterFacts{};
    if (!next.unreachable.empty() && !next.known()) {
      next.partitions = facts_->partitions;
      next.nodes = facts_->nodes;
    }
    if (next.unreachable.empty()) asked_at_ = asked_at;
    facts_ = std::make_shared<const ClusterFacts>(std::move(next));
  }
  news_.notify_all();
}

ClusterWatch::Facts ClusterWatch::known() {
  if (!threads_) refresh();
  std::lock_guard lock(mutex_);
  return facts_;
}

ClusterWatch::Facts ClusterWatch::ask(std::chrono::milliseconds patience, core::Millis fresh_for) {
  if (!threads_) return known();
  std::unique_lock lock(mutex_);
  const bool fresh = answered_ > 0 && facts_->unreachable.empty() && clock_.monotonic() - asked_at_ < fresh_for;
  if (fresh || !running_ || closed_) return facts_;
  wanted_ = true;
  wake_.notify_all();
  // One that is under way may have begun before the change that somebody wants to see.
  const auto begun = begun_;
  const bool told = news_.wait_for(lock, patience, [&] { return closed_ || answered_ > begun; });
  if (told) return facts_;
  auto late = *facts_;
  late.unreachable = "no answer yet";
  return std::make_shared<const ClusterFacts>(std::move(late));
}

}  // namespace runtime
