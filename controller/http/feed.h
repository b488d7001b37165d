#pragma once

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "core/types.h"

namespace runtime {
class Controller;
}

namespace http {

/// Progress of one job is told at most this often.
inline constexpr std::chrono::milliseconds kProgressInterval{500};
/// Something is sent at least this often, so that both sides notice a dead connection.
inline constexpr std::chrono::seconds kBeatInterval{10};
/// A reader that missed more events than this is told to load everything anew.
inline constexpr std::uint32_t kMaxReplay = 1000;

/// Follows the controller in a thread of its own and tells subscribers, as server-sent events:
///   hello        once, first: {started_at}; its id is the newest event's, where a reconnect may go on
///   job-changed  one an event: the event without its payload; id = the event's row id
///   progress     {job_id, state, status, attempt, step, steps_total, loss, tokens_per_s}; has no id
///   reset        what was missed is too much, or of another store: load everything anew
///   beat         nothing happened, all is well
class Feed {
 public:
  using Text = std::shared_ptr<const std::string>;
  /// Called from the feed's thread; must not wait.
  using Sink = std::function<void(const Text&)>;

  explicit Feed(runtime::Controller& controller);
  /// Stops within wait_change's slice.
  ~Feed();
  Feed(const Feed&) = delete;
  Feed& operator=(const Feed&) = delete;

  /// `after`: the newest event id the reader has; what came since is sent first. Nothing: from now on.
  std::uint64_t subscribe(std::optional<std::int64_t> after, Sink sink);
  void unsubscribe(std::uint64_t subscription);

 private:
  struct Subscriber {
    Sink sink;
    std::optional<std::int64_t> after;
    bool welcome = false;  // has had its hello
  };
  struct Seen {
    std::uint32_t attempt = 0;
    std::int64_t step = 0;
    std::string state;
    bool operator==(const Seen&) const = default;
  };

  void work();
  bool wait_for_readers();
  void welcome_new();
  void welcome(const Subscriber& newcomer);
  void tell_events();
  void tell_progress();
  void tell_all(const std::string& text);

  runtime::Controller& controller_;
  std::mutex mutex_;
  std::condition_variable wake_;
  bool stopping_ = false;
  std::uint64_t next_subscription_ = 1;
  std::map<std::uint64_t, Subscriber> subscribers_;
  // The thread's own.
  static constexpr std::int64_t kUnknown = -1;  // nobody listened: to be asked when somebody does
  std::int64_t last_event_ = kUnknown;
  std::map<core::JobId, Seen> seen_;
  std::thread thread_;
};

}  // namespace http
