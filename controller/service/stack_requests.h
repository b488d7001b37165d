#pragma once

#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/ranks/live_ranks.h"
#include "controller/service/parts.h"
#include "controller/stacks/stack_keeper.h"

namespace service {

/// Where the ranks of attempts stand. Stacks are asked for when an attempt is suspected, once more before it ends by a
/// hang, a silent rank or a lost node, and whenever a person wants them. controller/stacks/stack_keeper.h keeps them.
/// Thread-safe.
///
/// An end that waits for stacks is judged anew in each round meanwhile:
///
///   found: held -- the stacks are there, or kBeforeEnd is over, and it is found again --> told
///               -- not found for kFoundAgain: the rank went on, something came out, musterd was deaf --> called off
///               -- another rank has failed: the silent one was the first cause --> told
class StackRequests {
 public:
  /// The time that an end waits for the stacks, at most.
  static constexpr core::Millis kBeforeEnd{3'000};
  /// A rank that its node alone tells of is judged twice a second.
  static constexpr core::Millis kFoundAgain{1'000};
  /// An attempt that is suspected again and again is asked no more often than this.
  static constexpr core::Millis kBetweenSuspicions{60'000};

  /// `tell` lets the tasks of an attempt hear that stacks are asked for; `changed` lets people hear that they are
  /// there.
  StackRequests(const Parts& parts, std::function<void(const core::AttemptKey&)> tell,
                std::function<void(core::JobId)> changed, bool threads);

  common::Outcome<muster::v1::StacksView> get(const muster::v1::StacksRequest& request);
  std::string text(const core::AttemptKey& attempt, std::uint64_t number, core::RankNumber rank);
  /// A rank's stack from the task beside it.
  common::Outcome<muster::v1::KeepStackResponse> take(const muster::v1::KeepStackRequest& request);

  /// Takes what a round of watching has found, and returns what is to be told now: an end comes back when the stacks
  /// are there, or after kBeforeEnd, if it is still found then. Call it each round. For one thread.
  std::vector<ranks::Watched::Fact> before_telling(std::vector<ranks::Watched::Fact> found);
  /// A rank has failed, which may follow from an end that is held: that one, to be told before it.
  std::optional<core::EventBody> first_cause(const core::AttemptKey& key, core::RankNumber failed);

  void poll() { keeper_.poll(); }
  void close() { keeper_.close(); }

 private:
  struct Held {
    core::EventBody end;                 // as it was found first
    core::Millis until{0}, found_at{0};  // monotonic
    enum class Told { kNot, kHere, kAsFirstCause } told = Told::kNot;
  };
  /// True if an end that was found in this round is told in it.
  bool may_tell(const core::AttemptKey& key, const core::EventBody& end, core::Millis now);
  /// Somebody who has given none can be asked still.
  bool more_can_come(const core::AttemptKey& key, const core::EventBody& end,
                     const std::set<core::RankNumber>& given) const;
  void call_off(core::Millis now);
  common::Outcome<muster::v1::StacksView> get_of(const core::Job& job, const muster::v1::StacksRequest& request);
  muster::v1::StacksView view(const core::AttemptKey& key, std::uint64_t number) const;
  std::uint64_t ask(const core::AttemptKey& key, const std::string& why, const std::string& user);
  void suspect(const core::AttemptKey& key);
  std::string why_none(const core::AttemptKey& key, core::RankNumber rank) const;

  const Parts& parts_;
  const std::function<void(const core::AttemptKey&)> tell_;
  std::mutex mutex_;
  std::map<core::AttemptKey, Held> held_;
  std::map<core::AttemptKey, core::Millis> suspected_at_;  // monotonic, of attempts that were asked lately
  stacks::StackKeeper keeper_;
};

}  // namespace service
