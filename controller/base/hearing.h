#pragma once

#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <set>

#include "base/clock.h"
#include "base/loop.h"

namespace base {

/// Whether silence means anything. The controller concludes nothing from what it could not have heard.
///
/// Two things make it deaf. Its rounds of watching come late: this process, or the whole machine, stood still. Or a
/// write does not come back: the disk stands still, and whoever is not heard may wait for the same disk. After either,
/// silence counts from the end of the deafness. A write that fails has come back: a full disk makes nobody deaf.
///
/// A controller that has nothing to write learns nothing of its disk. Before it concludes anything, DiskProbe writes.
/// Thread-safe.
class Hearing {
 public:
  /// A round of watching that comes later than this after the one before is late.
  static constexpr core::Millis kLate{1000};
  /// A write that takes longer stands still. Less than the shortest silence that is concluded from, minus what a probe
  /// is asked before it.
  static constexpr core::Millis kStuckAfter{1000};
  /// A heartbeat does not wait for writes while one takes longer than this.
  static constexpr core::Millis kPatience{500};

  explicit Hearing(Clock& clock) : clock_(clock) {}

  /// One write, under way as long as this lives.
  class Write {
   public:
    explicit Write(Hearing& hearing) : hearing_(hearing), begun_(hearing.begin()) {}
    ~Write() { hearing_.end(begun_); }
    Write(const Write&) = delete;
    Write& operator=(const Write&) = delete;

   private:
    Hearing& hearing_;
    const core::Millis begun_;
  };

  /// A round of watching begins. True: nothing follows from any silence until now.
  bool was_deaf();
  /// Since when (monotonic) a write stands still; nullopt: none does.
  std::optional<core::Millis> stuck_since() const { return under_way_longer_than(kStuckAfter); }
  /// Whether to wait for a write is likely to be in vain.
  bool is_slow() const { return under_way_longer_than(kPatience).has_value(); }
  /// When a write came back last (monotonic); nullopt: none has.
  std::optional<core::Millis> written_at() const;

 private:
  core::Millis begin();
  void end(core::Millis begun);
  std::optional<core::Millis> under_way_longer_than(core::Millis limit) const;

  Clock& clock_;
  mutable std::mutex mutex_;
  std::multiset<core::Millis> under_way_;  // when they began
  std::optional<core::Millis> written_at_, last_round_;
  bool stood_still_ = false;  // a write did, since the last round
};

/// Writes a byte into a file of the data folder when asked, so that Hearing knows of a disk that stands still though
/// nothing else is written. Thread-safe; one thread of its own.
class DiskProbe {
 public:
  /// A question sooner than this after the last write, of whatever kind, is not asked: that write was the answer.
  static constexpr core::Millis kAgainAfter{500};

  /// Without threads it does nothing.
  DiskProbe(Hearing& hearing, Clock& clock, std::filesystem::path file, bool threads);

  /// Returns at once.
  void ask();
  /// The same, and waits until it is done, at most `patience`.
  void ask_and_wait(core::Millis patience);

 private:
  void write();

  Hearing& hearing_;
  Clock& clock_;
  const std::filesystem::path file_;
  std::mutex mutex_;
  std::condition_variable done_;
  bool wanted_ = false;  // until the write that was asked for is done
  Loop loop_;
};

}  // namespace base
