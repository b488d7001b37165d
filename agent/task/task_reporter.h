#pragma once

#include <chrono>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "agent/rank/grpc/grpc_client.h"
#include "agent/rank/meeting.h"
#include "agent/task/controller_link.h"

namespace agent::task {

/// The link by gRPC. It tells the controller the last request, at once when the request changes and at the controller's
/// interval otherwise. It does so on one stream, which is opened anew when it breaks, and by calls where the controller
/// knows no stream. Thread-safe; one thread of its own, and the stream's.
class TaskReporter : public ControllerLink {
 public:
  TaskReporter(const rank::Endpoint& controller, const std::string& token, muster::v1::TaskRequest first,
               OnDirective on_directive);
  ~TaskReporter() override;
  TaskReporter(const TaskReporter&) = delete;
  TaskReporter& operator=(const TaskReporter&) = delete;

  void tell(const muster::v1::TaskRequest& request) override;
  void tell_later(const muster::v1::TaskRequest& request) override;
  void hold() override;
  bool flush(std::chrono::milliseconds patience) override;
  std::chrono::milliseconds unheard_for() const override;
  std::string meet(const std::string& mine, rank::MeetingPatience patience) override;
  bool give_stack(std::uint64_t number, const std::string& text) override;

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  void run();
  /// These tell the newest request, with the lock released meanwhile. False: the controller can't be told now.
  bool send(Lock& lock);
  void open_stream();
  void close_stream(Lock& lock);
  bool stream_is_broken() const;
  void say_unreached();
  /// Notes that an answer is asked for.
  void ask(std::uint64_t number);
  void answered(const muster::v1::TaskResponse& answer);

  const rank::Endpoint controller_;
  rank::GrpcClient client_;
  const OnDirective on_directive_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, heard_;
  muster::v1::TaskRequest request_;
  std::uint64_t version_ = 1, heard_version_ = 0;               // of request_
  std::uint64_t asked_version_ = 0, asked_number_ = 0;          // of the newest request that asked for an answer
  std::optional<Clock::time_point> owes_since_ = Clock::now();  // the controller an answer
  Clock::time_point answered_at_ = Clock::now();                // on this stream; or the stream was opened then
  bool is_answered_ = false;                                    // this stream
  bool was_answered_ = false;                                   // some stream or call
  std::chrono::milliseconds interval_{500};
  bool closed_ = false, holds_ = false;

  // Fields of the thread that hears.
  muster::v1::Directive said_ = muster::v1::DIRECTIVE_CONTINUE;
  std::uint64_t stacks_ = 0;
  // Fields of the thread that tells.
  rank::Backoff backoff_;
  const Clock::time_point began_at_ = Clock::now();
  bool said_unreached_ = false;
  std::string error_;  // with which the newest stream ended
  std::unique_ptr<rank::TaskStream> stream_;
  std::thread thread_;
};

/// A ConnectToController.
std::unique_ptr<ControllerLink> report_by_grpc(const rank::Endpoint& controller, const std::string& token,
                                               const muster::v1::TaskRequest& first, OnDirective on_directive);

}  // namespace agent::task
