#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "controller/core/job.h"

namespace ranks {

/// After what time without progress a hang of a rank is suspected.
struct HangLimit {
  core::Millis time{0};
  std::uint64_t learned_from = 0;  // steps, or times in a section without steps; 0: nobody has learned it
  bool operator==(const HangLimit&) const = default;
};

/// The limits for hangs that the times between progress teach, by section: a limit is five times the 99th percentile of
/// the times of all ranks, and never less than twice the longest time. It is ten seconds at least for steps, and a
/// minute elsewhere: evaluations and checkpoints wait for disks.
///
/// A section that nobody has seen often enough has a generous limit: its first evaluation or its first checkpoint may
/// take long. Old times count less and less, so the limit follows a training whose steps change. Pure: every time is
/// passed in. Not thread-safe.
class HangLimits {
 public:
  static constexpr core::Millis kLeast{10'000}, kLeastElsewhere{60'000}, kGenerous{1'800'000};
  /// Steps and times that one rank needs before its section's times say anything.
  static constexpr std::uint32_t kEnoughSteps = 20, kEnoughTimes = 5;
  /// Times kept of each rank. When there are more, all that is known counts half.
  static constexpr double kTimesKept = 2048;
  /// Further sections of a program are not learned.
  static constexpr std::size_t kMostSections = 32;
  /// After an end by a hang of so long, which may have been none, the next attempt waits this many times as long.
  static constexpr int kAfterHang = 2;

  explicit HangLimits(std::uint32_t ranks) : ranks_(ranks) {}

  /// Between two signs of progress of this rank, the first of them in `section`, passed `took` and so many steps.
  void learn(const std::string& section, core::RankNumber rank, core::Millis took, core::Step steps);
  /// An attempt was ended after so long without progress in this section.
  void note_hang(const std::string& section, core::Millis waited);
  /// It was not ended after all. `before`: what after_hang() was.
  void forget_hang(const std::string& section, core::Millis before);
  HangLimit of(const std::string& section) const;
  /// The least time without progress that ends an attempt in this section, after an earlier end there; 0: none was.
  core::Millis after_hang(const std::string& section) const;

 private:
  struct Seen {
    std::uint32_t times = 0, steps = 0;
  };
  struct Section {
    std::map<int, double> times;  // how many, by the logarithm of the time
    double total = 0;
    std::vector<Seen> ranks;  // by rank
    Seen most;                // of one rank
    core::Millis after_hang{0};
  };
  Section* find(const std::string& section);

  std::uint32_t ranks_;
  std::map<std::string, Section, std::less<>> sections_;
};

/// "12 s, learned from 200 steps"; "30 min until 20 steps are timed, then learned from them".
std::string hang_limit_text(const HangLimit& limit, std::string_view section, bool is_set);

}  // namespace ranks
