#pragma once

#include <algorithm>
#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>
#include <set>

#include "controller/common/clock.h"

namespace common {

/// Tells whether silence means anything. The controller concludes nothing from what it could not have heard.
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
  /// No round follows soon, since there is nobody to be heard: the next one is not late.
  void rest() {
    std::lock_guard lock(mutex_);
    last_round_.reset();
  }
  /// Since when (monotonic) a write stands still; nullopt: none does.
  std::optional<core::Millis> stuck_since() const { return under_way_longer_than(kStuckAfter); }
  /// True if waiting for a write is likely to be in vain.
  bool is_slow() const { return under_way_longer_than(kPatience).has_value(); }
  /// When a write came back last (monotonic); nullopt: none has.
  std::optional<core::Millis> written_at() const {
    std::lock_guard lock(mutex_);
    return written_at_;
  }

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

/// Up to when everything that ranks have sent has been read.
///
/// A saturated controller reads heartbeats late. A heartbeat that has arrived and is not read yet must count as heard.
/// So musterd sends a word of its own down the way of the heartbeats. When the word is read, every heartbeat that had
/// arrived before the word was sent has been read, too. Silence is judged by that moment instead of now.
///
/// Without a way (nothing is attached, or the way is broken) everything counts as read. Thread-safe.
class Reading {
 public:
  explicit Reading(Clock& clock) : clock_(clock) {}

  /// `send` sends word number n and returns at once.
  void attach(std::function<void(std::uint64_t n)> send);
  /// No `send` runs any more when this returns.
  void detach();

  /// Sends a word, unless one is under way.
  void ask();
  /// Word number n was read.
  void arrived(std::uint64_t n);
  /// The way broke. The word under way is not waited for.
  void lost();

  /// Everything sent before this moment (monotonic) has been read.
  core::Millis read_until() const {
    const std::lock_guard lock(mutex_);
    return read_until_.value_or(clock_.monotonic());
  }
  /// How late the newest word was read, or how long the word under way has been waiting if that is longer.
  core::Millis lag() const {
    const std::lock_guard lock(mutex_);
    return under_way_ ? std::max(lag_, clock_.monotonic() - *asked_at_) : lag_;
  }
  /// Since the newest word was sent; nullopt: none was.
  std::optional<core::Millis> asked_ago() const;

 private:
  Clock& clock_;
  std::mutex send_mutex_;  // held while a word is sent
  std::function<void(std::uint64_t)> send_;
  mutable std::mutex mutex_;
  std::uint64_t number_ = 0;
  std::optional<core::Millis> asked_at_;    // the newest word
  std::optional<core::Millis> read_until_;  // nullopt: there is no way
  bool under_way_ = false;
  core::Millis lag_{0};
};

}  // namespace common
