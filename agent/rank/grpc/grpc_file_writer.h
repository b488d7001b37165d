#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <thread>

#include "agent/rank/grpc/grpc_outbox.h"
#include "muster/v1/rank_service.pb.h"

namespace agent::rank {

/// Everything that a reporter does with files: the unsent file, and lines on stderr, which is the rank's log. A thread
/// of its own does it, so a disk that stands still holds up that thread alone. No call waits for a file but wait().
///
/// The queue is bounded. While one piece of work on the unsent file is under way, keep() takes nothing more; the outbox
/// holds it until the next call. Beyond kMostLines waiting lines, further lines are dropped, and their number is told
/// when there is room again.
///
/// Thread-safe. The destructor waits at most kLastWait. A thread that the kernel still holds then is left behind.
class FileWriter {
 public:
  using Clock = std::chrono::steady_clock;
  static constexpr std::size_t kMostLines = 256;
  static constexpr std::chrono::milliseconds kLastWait{200};

  /// `unsent` as UnsentFile takes it. `prefix` begins each line.
  FileWriter(std::string unsent, std::string prefix);
  ~FileWriter();
  FileWriter(const FileWriter&) = delete;
  FileWriter& operator=(const FileWriter&) = delete;

  void say(const std::string& text);

  // As of UnsentFile, in this order.
  void reserve();
  /// False: the work before it is still under way, and nothing was taken.
  bool keep(const GrpcOutbox& outbox, const muster::v1::HeartbeatRequest& news);
  void drop();
  void remove();

  /// True once all that keep() was given is on disk, and nothing is under way.
  bool holds_all() const;
  /// True if there is nothing in the unsent file, and nothing is under way.
  bool holds_nothing() const;
  /// Waits until nothing is under way, lines included; false if something still is at `until`.
  bool wait(Clock::time_point until);

 private:
  struct State;
  enum class Work { kReserve, kAppend, kDrop, kRemove };
  static void run(const std::shared_ptr<State>& state);
  static void work(State& state, Work what);
  static void print(State& state, const std::string& line);
  void post(Work what);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace agent::rank
