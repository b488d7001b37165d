#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <optional>

#include "base/clock.h"

namespace base {

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
  core::Millis read_until() const;
  /// How late the newest word was read, or how long the word under way has been waiting if that is longer.
  core::Millis lag() const;
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

}  // namespace base
