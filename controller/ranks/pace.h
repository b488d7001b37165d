#pragma once

#include <mutex>
#include <optional>
#include <string>

#include "controller/core/types.h"

namespace ranks {

/// How often ranks may send heartbeats. Pure but for its lock: every time is passed in. Thread-safe.
///
/// States: kFine -> kOverloaded -> kSlowed -> kFine. Overloaded: heartbeats are read late, so the interval handed out
/// grows (1 s, 2 s, 4 s), and each rank learns it with the next answer. Slowed: heartbeats are read in time again, at
/// the longer interval. The interval shrinks after a calm time. The calm time doubles each time the interval grows soon
/// after it shrank, so that a load that stays does not make it swing.
class Pace {
 public:
  /// Heartbeats that are read later than this are late.
  static constexpr core::Millis kLate{250};
  /// Heartbeats that are read within this are in time.
  static constexpr core::Millis kInTime{50};
  static constexpr core::Millis kLeastFloor{1000};
  static constexpr core::Millis kMostFloor{4000};
  static constexpr core::Millis kCalm{15'000};
  static constexpr core::Millis kMostCalm{240'000};
  /// A rank is missed after so many intervals at the least.
  static constexpr int kMissedAfter = 3;

  enum class State { kFine, kOverloaded, kSlowed };

  /// A controller has begun, and takes ranks over that run. The one before may have asked them for one heartbeat in
  /// kMostFloor, and they learn with their first answer that this one asks for more. So for a fresh time each rank may
  /// be unheard as if it had been told the longest interval. The time begins again when a rank or its task comes back
  /// (came_back()), for kComeBack after the start.
  void restarted(core::Millis now);
  void came_back(core::Millis now);
  static constexpr core::Millis kFresh = kMostFloor * kMissedAfter;
  static constexpr core::Millis kComeBack{120'000};

  /// Call it often. `lag`: see Reading.
  void note(core::Millis lag, core::Millis now);
  State state() const;
  /// No rank is asked to send more often than this; 0: every rank sends as often as its job says.
  core::Millis floor() const;
  core::Millis interval(core::Millis of_job) const;
  /// How much longer than `silent_after` a rank may be unheard: it may have been told a longer interval.
  core::Millis grace(core::Millis silent_after) const;
  /// Empty: heartbeats are read in time, at the interval of each job.
  std::string problem() const;

 private:
  void grow(core::Millis now);
  void shrink(core::Millis now);

  mutable std::mutex mutex_;
  core::Millis lag_{0};
  core::Millis floor_{0};
  std::optional<core::Millis> restarted_at_;
  core::Millis longest_{0};        // some rank may still send at this interval
  core::Millis longest_until_{0};  // until then, when it is longer than floor_
  core::Millis calm_{kCalm};
  bool late_ = false;
  core::Millis late_since_{0}, changed_at_{0}, shrunk_at_{0}, fine_since_{0};
};

}  // namespace ranks
