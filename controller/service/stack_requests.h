#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <string>
#include <utility>
#include <vector>

#include "ranks/live_ranks.h"
#include "service/parts.h"
#include "stacks/stack_keeper.h"

namespace service {

/// Where the ranks of attempts stand. Stacks are asked for when an attempt is suspected, once more before it ends by a
/// hang, and whenever a person wants them. stacks/stack_keeper.h keeps them. Thread-safe.
class StackRequests {
 public:
  /// What an end by a hang waits for the stacks, at most.
  static constexpr core::Millis kBeforeEnd{3'000};
  /// An attempt that is suspected again and again is asked no more often than this.
  static constexpr core::Millis kBetweenSuspicions{60'000};

  /// `tell` lets the tasks of an attempt hear that stacks are asked for; `changed` lets people hear that they are
  /// there.
  StackRequests(const Parts& parts, std::function<void(const core::AttemptKey&)> tell,
                std::function<void(core::JobId)> changed, bool threads);

  base::Outcome<muster::v1::StacksView> get(const muster::v1::StacksRequest& request);
  std::string text(const core::AttemptKey& attempt, std::uint64_t number, core::RankNumber rank);
  /// A rank's stack from the task beside it.
  base::Outcome<muster::v1::KeepStackResponse> take(const muster::v1::KeepStackRequest& request);

  /// Takes what a round of watching has found, and returns what is to be told now: an end by a hang comes back when the
  /// stacks are there, or after kBeforeEnd. Call it each round. For one thread.
  std::vector<ranks::Watched::Fact> before_telling(std::vector<ranks::Watched::Fact> found);

  void poll() { keeper_.poll(); }
  void close() { keeper_.close(); }

 private:
  struct Held {
    core::AttemptKey key;
    ranks::Watched::Fact fact;
    core::Millis until{0};  // monotonic
  };
  base::Outcome<muster::v1::StacksView> get_of(const core::Job& job, const muster::v1::StacksRequest& request);
  muster::v1::StacksView view(const core::AttemptKey& key, std::uint64_t number) const;
  std::uint64_t ask(const core::AttemptKey& key, const std::string& why, const std::string& user);
  void suspect(const core::AttemptKey& key);
  std::string why_none(const core::AttemptKey& key, core::RankNumber rank) const;

  const Parts& parts_;
  const std::function<void(const core::AttemptKey&)> tell_;
  std::vector<Held> held_;
  std::map<core::AttemptKey, core::Millis> suspected_at_;  // monotonic, of attempts that were asked lately
  stacks::StackKeeper keeper_;
};

}  // namespace service
