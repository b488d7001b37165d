#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "controller/common/loop.h"
#include "controller/core/job.h"

namespace service {
class Controller;
}

namespace http {

/// The shortest time between two progress messages of a job.
inline constexpr std::chrono::milliseconds kProgressInterval{500};
/// The longest time without a message, so that both sides notice a dead connection.
inline constexpr std::chrono::seconds kBeatInterval{10};
/// A reader that missed more events than this must load everything again.
inline constexpr std::uint32_t kMaxReplay = 1000;

/// Watches the controller in a thread and sends server-sent events to subscribers:
///   hello        the first message: {started_at}; its id is where a reconnect goes on
///   job-changed  one for each event of the store, without the payload; its id is the event's id
///   progress     {job_id, state, status, attempt, step, steps_total, loss, tokens_per_s}; has no id
///   reset        the reader missed too much, or knows another store: it must load everything again
///   beat         nothing happened; the connection is alive
class Feed {
 public:
  using Text = std::shared_ptr<const std::string>;
  /// Called in the feed's thread. It must not wait.
  using Sink = std::function<void(const Text&)>;

  explicit Feed(service::Controller& controller);

  /// `after`: the newest event id that the reader has. Newer events are sent first. nullopt: only events from now on.
  std::uint64_t subscribe(std::optional<std::int64_t> after, Sink sink);
  void unsubscribe(std::uint64_t subscription) {
    const std::lock_guard lock(mutex_);
    subscribers_.erase(subscription);
  }

 private:
  struct Subscriber {
    Sink sink;
    std::optional<std::int64_t> after;
    bool welcome = false;  // the subscriber has got its hello
  };
  struct Seen {
    std::uint32_t attempt = 0;
    std::int64_t step = 0;
    std::string state;
    bool operator==(const Seen&) const = default;
  };

  std::optional<core::Millis> step();
  void welcome_new();
  void welcome(const Subscriber& newcomer);
  void tell_events();
  void tell_progress();
  void tell_all(const std::string& text);

  service::Controller& controller_;
  std::mutex mutex_;
  std::uint64_t next_subscription_ = 1;
  std::map<std::uint64_t, Subscriber> subscribers_;
  // Used by the thread only.
  static constexpr std::int64_t kUnknown = -1;  // there was no subscriber; read the newest id for the next one
  std::int64_t last_event_ = kUnknown;
  std::map<core::JobId, Seen> seen_;
  std::uint64_t change_ = 0;
  bool moved_ = true;
  std::chrono::steady_clock::time_point next_progress_ = std::chrono::steady_clock::now();
  std::chrono::steady_clock::time_point next_beat_ = next_progress_ + kBeatInterval;
  common::Loop loop_;
};

}  // namespace http
