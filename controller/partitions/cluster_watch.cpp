#include "controller/partitions/cluster_watch.h"

#include "controller/executors/executor.h"

namespace partitions {

ClusterWatch::ClusterWatch(executors::Executor& executor, common::Clock& clock, bool threads)
    : executor_(executor),
      clock_(clock),
      threads_(threads),
      loop_("what Slurm says of its partitions could not be used", threads, [this] {
        refresh();
        return kInterval;
      }) {}

void ClusterWatch::close() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  news_.notify_all();
  loop_.close();
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
    auto next = heard ? *std::move(heard) : executors::ClusterFacts{};
    if (!next.unreachable.empty() && !next.known()) {
      next.partitions = facts_->partitions;
      next.nodes = facts_->nodes;
    }
    if (next.unreachable.empty()) asked_at_ = asked_at;
    facts_ = std::make_shared<const executors::ClusterFacts>(std::move(next));
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
  if (fresh || !loop_.is_running() || closed_) return facts_;
  loop_.wake();
  // One that is under way may have begun before the change that somebody wants to see.
  const auto begun = begun_;
  const bool told = news_.wait_for(lock, patience, [&] { return closed_ || answered_ > begun; });
  if (told) return facts_;
  auto late = *facts_;
  late.unreachable = "no answer yet";
  return std::make_shared<const executors::ClusterFacts>(std::move(late));
}

}  // namespace partitions
