#pragma once

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>

#include "agent/rank/grpc/grpc_outbox.h"
#include "muster/v1/rank_service.pb.h"

namespace agent::rank {

/// Reports that the controller could not be told while it was away, kept on disk: a rank may end, or be killed, before
/// the controller is back. The controller reads the file when it learns that the rank has ended.
///
/// The file holds HeartbeatRequests, each behind its length (protobuf's delimited form), oldest first. Each tells the
/// declared series of its metrics. What stands in the file twice, or was sent after all, is no harm. What a full disk
/// does not take is kept in memory and written when it does. Not thread-safe; nothing throws: a disk that takes no more
/// costs only this.
class UnsentFile {
 public:
  /// "" keeps nothing. The folder is made when there is something to keep, or room to reserve.
  explicit UnsentFile(std::string path) : path_(std::move(path)) {}

  /// Sets room aside, so that a disk that fills up later does not cost a rank's last words. Where a file system can't,
  /// or has none, there is none.
  void reserve();

  /// Reports that `outbox` holds and the file does not, in batches, each in a copy of `news`: to be appended at once.
  std::string collect(const GrpcOutbox& outbox, const muster::v1::HeartbeatRequest& news);
  /// May take as long as the disk does.
  void append(const std::string& bytes);
  /// All of it has been sent; reserved room stays.
  void drop();
  /// Removes the file: all of it has been sent, and nothing more comes.
  void remove();
  bool empty() const { return bytes_ == 0 && pending_.empty(); }
  /// The controller has acknowledged all that the file holds of `outbox`, whatever has come since.
  bool is_told(const GrpcOutbox& outbox) const {
    return outbox.is_acknowledged({.steps = kept_steps_, .checkpoints = kept_checkpoints_});
  }
  /// All that was appended is on disk.
  bool holds_all() const { return !path_.empty() && problem_.empty() && pending_.empty(); }
  /// Empty, or why not all is on disk.
  const std::string& problem() const { return problem_; }

  /// A file does not grow beyond this: about half a million steps of the loop's series, in full reports. A report tells
  /// the declared series besides, 40 bytes each, so steps that are kept one by one take three times as much.
  static constexpr std::int64_t kMostBytes = 64 << 20;
  /// About two thousand steps, in full reports.
  static constexpr std::int64_t kReservedBytes = 256 << 10;

 private:
  const std::string path_;
  std::uint64_t kept_steps_ = 0, kept_checkpoints_ = 0;  // as the outbox counts them
  void write_pending();

  std::int64_t bytes_ = 0;  // on disk
  std::string pending_;     // not yet
  bool reserved_ = false;
  bool given_up_ = false;
  std::string problem_;
};

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

  // Work on the UnsentFile, done in the order of these calls.
  void reserve() { post(Work::kReserve); }
  /// False: the work before it is still under way, and nothing was taken.
  bool keep(const GrpcOutbox& outbox, const muster::v1::HeartbeatRequest& news);
  /// Drops the file if the controller has acknowledged all of it. Steps may go on meanwhile.
  void drop_if_told(const GrpcOutbox& outbox);
  void remove() { post(Work::kRemove); }

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
  void post(Work what);

  std::shared_ptr<State> state_;
  std::thread thread_;
};

}  // namespace agent::rank
