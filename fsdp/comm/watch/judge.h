#pragma once
#include <chrono>
#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "fsdp/comm/watch/calls.h"
#include "fsdp/text/json.h"

namespace fsdp::watch {

/// What a rank answers when it is asked for its calls on a communicator.
struct Answer {
  bool belongs = true;      // the rank is in that group
  std::vector<Call> calls;  // the last ones, the oldest first
  /// The call that the rank stands in. On devices whose hosts don't wait: its last call.
  std::optional<std::uint64_t> waits_in;
  std::chrono::milliseconds unchanged{};  // since its last call or wait here
  std::string elsewhere;                  // the call of another communicator that it stands in; empty: none

  std::uint64_t made() const { return calls.empty() ? 0 : calls.back().number + 1; }
  Json json() const;
  /// Throws JsonError.
  static Answer parse(const Json& json);
};

/// What the answers of a group's ranks show.
struct Finding {
  /// Ranks made different calls under one number. No such collective can end. Empty: none.
  std::string difference;
  /// Ranks that have not come to a call that others wait in. That is no error: such a rank may compute. Empty: none.
  std::string late;
};

/// `group` is the name of a communicator. `silent` are ranks that were asked and have not answered.
Finding judge(const std::string& group, const std::map<int, Answer>& answers, const std::set<int>& silent);

/// "rank 3", "ranks 0 and 2", "ranks 0, 1, 2 and 61 more".
std::string names_of(const std::vector<int>& ranks);

}  // namespace fsdp::watch
