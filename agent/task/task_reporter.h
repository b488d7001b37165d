#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <thread>

#include "agent/task/controller_link.h"
#include "rank/grpc_client.h"

namespace agent::task {

/// The link by gRPC. It tells the controller the last request, at once when the request changes and at the controller's
/// interval otherwise. A controller that is away is called again and again. Thread-safe; one thread of its own.
class TaskReporter : public ControllerLink {
 public:
  TaskReporter(const worker::Endpoint& controller, const std::string& token, muster::v1::TaskRequest first,
               OnDirective on_directive);
  ~TaskReporter() override;
  TaskReporter(const TaskReporter&) = delete;
  TaskReporter& operator=(const TaskReporter&) = delete;

  void tell(const muster::v1::TaskRequest& request) override;
  bool flush(std::chrono::milliseconds patience) override;
  std::chrono::milliseconds unheard_for() const override;
  std::string meet(const std::string& mine, worker::MeetingPatience patience) override;

 private:
  void run();

  worker::GrpcClient client_;
  OnDirective on_directive_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, heard_;
  std::chrono::steady_clock::time_point heard_at_ = std::chrono::steady_clock::now();
  muster::v1::TaskRequest request_;
  std::uint64_t version_ = 1, heard_version_ = 0;
  bool closed_ = false;
  std::thread thread_;
};

/// A ConnectToController.
std::unique_ptr<ControllerLink> report_by_grpc(const worker::Endpoint& controller, const std::string& token,
                                               const muster::v1::TaskRequest& first, OnDirective on_directive);

}  // namespace agent::task
