#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>

#include "controller/common/clock.h"
#include "controller/common/loop.h"
#include "controller/executors/cluster_facts.h"

namespace executors {
class Executor;
}

namespace partitions {

/// What the scheduler says of its partitions and nodes, asked now and then, and when somebody wants to know: a
/// scheduler that is slow or down keeps nobody waiting longer than he says. Thread-safe.
class ClusterWatch {
 public:
  /// Between two questions that nobody asked for.
  static constexpr core::Millis kInterval{60'000};
  /// To people who only look, what is no older than this is new enough.
  static constexpr core::Millis kFresh{1000};

  /// Without threads every look asks.
  ClusterWatch(executors::Executor& executor, common::Clock& clock, bool threads);

  void start() { loop_.start(); }
  void close();

  using Facts = std::shared_ptr<const executors::ClusterFacts>;
  /// What is known; never null.
  Facts known();
  /// What the scheduler says to a question put after this call, or what it said no longer than `fresh` ago; after
  /// `patience` what is known, with `unreachable` set.
  Facts ask(std::chrono::milliseconds patience, core::Millis fresh = kFresh);

 private:
  void refresh();

  executors::Executor& executor_;
  common::Clock& clock_;
  const bool threads_;
  std::mutex mutex_;
  std::condition_variable news_;
  Facts facts_ = std::make_shared<executors::ClusterFacts>();
  core::Millis asked_at_{0};                // monotonic, of what is known
  std::uint64_t begun_ = 0, answered_ = 0;  // the newest question, and the newest with an answer, good or bad
  bool closed_ = false;
  common::Loop loop_;
};

}  // namespace partitions
