#pragma once
#include <c10/core/Device.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace fsdp {

/// Records when this rank computed, communicated and waited, for chrome://tracing and Perfetto. Off until begin(), and
/// then a span costs one load. Thread-safe.
///
/// Rows of a trace (tid): 1 is the thread that trains; its spans nest. Rows from 10 on are backward passes of units,
/// and rows from 100 on are collectives from their start to the end of their wait; each such row holds spans that do
/// not overlap. Row 2 has the spans of row 1 on the clock of the GPU, between events of the current stream.
class Tracer {
 public:
  using Clock = std::chrono::steady_clock;
  enum class Row { kHost, kBackward, kCollective };

  Tracer();
  ~Tracer();
  Tracer(const Tracer&) = delete;
  Tracer& operator=(const Tracer&) = delete;

  bool is_on() const { return on_.load(std::memory_order_relaxed); }
  /// Forgets what was recorded, and records from now on, at most kMostSpans. On a GPU it waits for the device.
  void begin(c10::Device device = c10::kCPU);
  /// Ends the recording. Returns a trace in Chrome's JSON format: complete events ("ph":"X") in microseconds of Unix
  /// time, with pid = `rank`. So the traces of several ranks may be joined. On a GPU it waits for the device.
  std::string end(int rank);
  static constexpr std::size_t kMostSpans = 1 << 20;

  /// Adds a span that has ended. `kind` is its category, such as "wait"; `what` names unit or step. Negative `bytes`
  /// are not known. Does nothing while off.
  void add(Row row, const char* kind, std::string_view what, std::int64_t bytes, Clock::time_point begin,
           Clock::time_point end);
  /// A span of Row::kBackward, whose begin and end are told apart. close() without open() does nothing.
  void open(const char* kind, const std::string& what);
  void close(const char* kind, const std::string& what);

  /// While it lives nothing is recorded: calls that only put work into a graph took no time of the device.
  class Pause {
   public:
    explicit Pause(Tracer& tracer) : tracer_(tracer), was_on_(tracer.on_.exchange(false)) {}
    ~Pause() {
      if (was_on_) tracer_.on_.store(true, std::memory_order_relaxed);
    }
    Pause(const Pause&) = delete;
    Pause& operator=(const Pause&) = delete;

   private:
    Tracer& tracer_;
    const bool was_on_;
  };

  /// A span of Row::kHost, from construction to destruction. `tracer` may be null. `kind` and the characters of `what`
  /// must outlive the scope.
  class Scope {
   public:
    Scope(Tracer* tracer, const char* kind, std::string_view what, std::int64_t bytes = -1) {
      if (tracer != nullptr && tracer->is_on()) start(tracer, kind, what, bytes);
    }
    ~Scope() {
      if (tracer_ != nullptr) stop();
    }
    Scope(const Scope&) = delete;
    Scope& operator=(const Scope&) = delete;

   private:
    void start(Tracer* tracer, const char* kind, std::string_view what, std::int64_t bytes);
    void stop();

    Tracer* tracer_ = nullptr;
    const char* kind_ = nullptr;
    std::string_view what_;
    std::int64_t bytes_ = -1;
    Clock::time_point begin_;
    std::shared_ptr<void> device_;  // where the device is in its stream
  };

 private:
  struct Recording;
  std::atomic<bool> on_{false};
  std::unique_ptr<Recording> recording_;
};

}  // namespace fsdp
