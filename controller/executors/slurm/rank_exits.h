#pragma once

#include <algorithm>
#include <functional>
#include <optional>
#include <vector>

#include "controller/core/event.h"
#include "controller/executors/executor.h"

namespace executors::on_slurm {

/// The ranks of an attempt: who is heard, whose exit is held, and in which order exits are told. Pure; times are passed
/// in.
///
/// An exit is held until two things are known: whether Slurm caused the exit (then the rank is "cleared" if it did
/// not), and whether another rank failed first.
class RankExits {
 public:
  explicit RankExits(std::uint32_t world_size) : ranks_(world_size) {}

  struct Rank {
    std::optional<TaskReport> report;
    std::optional<core::Millis> heard_at;
    std::optional<core::Millis> exited_at;          // the exit is held since then
    std::optional<core::Millis> asked_to_leave_at;  // the task told of a SIGTERM from outside
    std::optional<int> failing;                     // its place among the ranks that said that they leave with an error
    bool from_file = false;                         // the exit was read from a file, long after
    bool cleared = false;                           // Slurm did not cause the exit
    bool told = false;
    bool is_held() const { return exited_at && !told; }
    bool heard_within(core::Millis limit, core::Millis now) const { return heard_at && now - *heard_at < limit; }
  };
  std::uint32_t size() const { return static_cast<std::uint32_t>(ranks_.size()); }
  const Rank& operator[](core::RankNumber rank) const { return ranks_[rank]; }

  /// The changes that a task's report makes.
  struct News {
    bool is_news = false;  // the rank's exit was not known before
    bool signal = false;   // a signal from outside that was not told before
    bool exit = false;     // the rank has exited, and the exit is held
  };
  News hear(core::RankNumber rank, const TaskReport& report, core::Millis now);
  /// Takes a report from a status file as hear() does, but the rank is not heard by that.
  News read(core::RankNumber rank, const TaskReport& report, core::Millis now);
  /// A rank says that it is about to leave with an error.
  void failing(core::RankNumber rank);

  /// Slurm did not cause the exit of this rank, of all that have exited, of those that exited before `asked_at`.
  void clear(core::RankNumber rank) { ranks_[rank].cleared = true; }
  void clear_all() { clear_before(core::Millis::max()); }
  void clear_before(core::Millis asked_at);
  /// The exits that Slurm may have caused, held for `most` and longer. They are cleared. Returns whether one of the
  /// ranks had been told to leave.
  bool clear_held_for(core::Millis most, core::Millis now, std::optional<core::Millis> asked_at = std::nullopt);
  /// Ranks without a word of their end count as killed with their task.
  void end_the_silent(core::Millis now);

  /// Takes the held exits out, as facts: all of them, or those that nothing still to come can explain better.
  /// `most`: exits that Slurm surely did not cause are held this long at most; nullopt: as long as it takes.
  std::vector<core::EventBody> take_held(core::AttemptNumber attempt);
  std::vector<core::EventBody> take_settled(core::AttemptNumber attempt, std::optional<core::Millis> most,
                                            core::Millis now);

  template <typename Is>
  bool any(Is&& is) const {
    return std::ranges::any_of(ranks_, is);
  }
  bool all_told() const {
    return !any([](const Rank& rank) { return !rank.told; });
  }
  bool any_exited() const {
    return any([](const Rank& rank) { return rank.exited_at.has_value(); });
  }
  /// A rank has begun if its task has spoken, or has left a status file.
  bool any_begun() const {
    return any([](const Rank& rank) { return rank.report.has_value(); });
  }
  bool all_begun() const {
    return !any([](const Rank& rank) { return !rank.report; });
  }
  bool never_heard() const {
    return !any([](const Rank& rank) { return rank.heard_at || rank.exited_at; });
  }
  /// Slurm may have caused some exit that is held.
  bool waits_for_slurm() const {
    return any([](const Rank& rank) { return rank.is_held() && !rank.cleared; });
  }
  /// Some rank that has exited had got a SIGTERM from outside.
  bool was_told_to_leave() const;

  /// A word that a task sent before the task died may be read this much later.
  static constexpr core::Millis kLateWord{300};
  /// The clocks of nodes cannot be compared if words take so much longer from one node than from another, by them.
  static constexpr core::Millis kClocksAgree{1000};

 private:
  bool is_settled(core::RankNumber rank) const;
  std::vector<core::EventBody> take(core::AttemptNumber attempt,
                                    const std::function<bool(core::RankNumber)>& may_be_told);
  std::function<core::Millis(const Rank&)> order_of(const std::vector<core::RankNumber>& ranks) const;

  std::vector<Rank> ranks_;
  int failing_ = 0;
};

bool has_signal(const TaskReport& report, int number);

}  // namespace executors::on_slurm
