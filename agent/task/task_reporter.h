#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "muster/v1/rank_service.pb.h"
#include "rank/grpc_client.h"
#include "rank/meeting_patience.h"

namespace worker::task {

/// Tells the controller what stands in `request`, at once when it changes and at the controller's interval otherwise,
/// and hears what it wants. A controller that is away is called again and again. Thread-safe; one thread of its own.
class TaskReporter {
 public:
  /// `on_directive` is called from the reporter's thread whenever the answer is another than before.
  TaskReporter(const Endpoint& controller, const std::string& token, muster::v1::TaskRequest first,
               std::function<void(const muster::v1::TaskResponse&)> on_directive);
  ~TaskReporter();
  TaskReporter(const TaskReporter&) = delete;
  TaskReporter& operator=(const TaskReporter&) = delete;

  void tell(const muster::v1::TaskRequest& request);
  /// Waits until what was told last has been heard, at most `patience`; false if it was not.
  bool flush(std::chrono::milliseconds patience);
  /// Since the controller last answered.
  std::chrono::milliseconds unheard_for() const;
  /// Where rank 0 listens: offers `mine` (rank 0) or asks (the others; empty). Blocks until it is known, as long as
  /// there is patience; empty if it is not, or if the attempt is over.
  std::string meet(const std::string& mine, MeetingPatience patience);

 private:
  void run();

  GrpcClient client_;
  std::function<void(const muster::v1::TaskResponse&)> on_directive_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, heard_;
  std::chrono::steady_clock::time_point heard_at_ = std::chrono::steady_clock::now();
  muster::v1::TaskRequest request_;
  std::uint64_t version_ = 1, heard_version_ = 0;
  bool closed_ = false;
  std::thread thread_;
};

}  // namespace worker::task
