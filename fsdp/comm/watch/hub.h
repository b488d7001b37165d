#pragma once
#include <chrono>
#include <functional>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "fsdp/comm/watch/judge.h"
#include "fsdp/text/json.h"

namespace fsdp::watch {

/// What rank 0 does for all watchers: it passes questions on, judges the answers, and tells the verdict.
///
/// Messages of ranks: {"ask": group, "ranks": [its ranks]}, {"answer": group, ...}, {"verdict": text}, {"bye": {group:
/// calls}}. Messages to ranks: {"query": group}, {"late": text, "group": group}, {"verdict": text}, {"gone": rank,
/// "why": text}, and that with "made": {group: calls} of a rank that has said goodbye. The watcher of rank 0 itself
/// sends {"roll": text} while ranks have not come. No clock and no sockets of its own. Not thread-safe.
class Hub {
 public:
  using Clock = std::chrono::steady_clock;
  using Send = std::function<void(int rank, const Json& message)>;

  /// A rank that has not answered after `patience` is judged to be silent.
  Hub(std::chrono::milliseconds patience, Send send) : patience_(patience), send_(std::move(send)) {}

  void came(int rank);
  /// The connection of a rank has ended. `why` says what that means, for people.
  void gone(int rank, const std::string& why);
  /// Throws JsonError for nonsense.
  void heard(int rank, const Json& message, Clock::time_point now);
  /// Ends questions that have waited long enough.
  void look(Clock::time_point now);

 private:
  struct Question {
    std::vector<int> ranks;  // of the group
    std::map<int, Answer> answers;
    std::set<int> silent;  // no answer yet
    Clock::time_point deadline;
  };

  void tell(std::vector<int> ranks, const Json& message);
  void tell_all(const Json& message);
  void lost(int rank, Json message);
  void decide(const std::string& verdict);
  void conclude(const std::string& group, const Question& question);

  std::chrono::milliseconds patience_;
  Send send_;
  std::set<int> ranks_;
  std::map<std::string, Question> questions_;  // by group
  std::map<int, Json> gone_;                   // what was told of them
  std::string verdict_;
};

}  // namespace fsdp::watch
