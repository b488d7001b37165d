#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "base/fd.h"
#include "fsdp/comm/sockets/connect.h"
#include "fsdp/comm/watch/calls.h"
#include "fsdp/text/json.h"

namespace fsdp::watch {

/// Answer of a rank that is asked for its calls on a communicator.
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

/// Facts that the answers of a group's ranks show.
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

/// The work of rank 0 for all watchers: it passes questions on, judges the answers, and tells the verdict.
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

/// Lines of text in both directions over a socket. No call waits, but close(). Not thread-safe.
class Line {
 public:
  explicit Line(base::Fd socket) : socket_(std::move(socket)) {}

  int fd() const { return socket_.get(); }
  /// Sends the text and a line's end. What the kernel does not take now waits for flush().
  void put(const std::string& text);
  void flush();
  bool wants_to_write() const { return !is_gone_ && !out_.empty(); }
  /// The whole lines that have arrived.
  std::vector<std::string> take();
  /// The other end has closed the connection, or said nonsense.
  bool is_gone() const { return is_gone_; }
  /// Ends the connection so that the other end still reads what was put. Waits for that for at most `patience`.
  void close(std::chrono::milliseconds patience);

 private:
  base::Fd socket_;
  std::string in_, out_;
  bool is_gone_ = false;
};

}  // namespace fsdp::watch
