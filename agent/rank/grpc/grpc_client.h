#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <thread>
#include <utility>

#include "agent/rank/meeting.h"
#include "muster/v1/rank_service.grpc.pb.h"

namespace agent::rank {

/// RankService of one controller over one channel. Every call has a deadline, a stream has none. Thread-safe.
///
/// A controller may come back at another address. So after a call or a stream that has failed, a thread of its own
/// reads the file that tells where the controller is now. The calls that begin after that go there. No call waits for
/// the file.
class GrpcClient {
 public:
  using Millis = std::chrono::milliseconds;
  using Stub = muster::v1::RankService::Stub;

  GrpcClient(const ControllerPlace& controller, std::string token);

  /// The address to which calls go.
  Endpoint controller() const;

  /// `method`: such as &GrpcClient::Stub::Register.
  template <typename Request, typename Response>
  grpc::Status call(grpc::Status (Stub::*method)(grpc::ClientContext*, const Request&, Response*),
                    const Request& request, Response& response, Millis limit) {
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + limit);
    const auto status = begin(context) ? ((*stub()).*method)(&context, request, &response)
                                       : grpc::Status(grpc::StatusCode::CANCELLED, "cancelled");
    end(context);
    if (!status.ok()) look_for_controller();
    return status;
  }

  using BeatCall = grpc::ClientAsyncReaderWriter<muster::v1::HeartbeatRequest, muster::v1::BeatResponse>;
  using TaskCall = grpc::ClientAsyncReaderWriter<muster::v1::TaskRequest, muster::v1::TaskResponse>;
  /// `call` becomes a stream that is not started yet. end() must be called before `context` goes.
  void begin_stream(grpc::ClientContext& context, grpc::CompletionQueue& queue, std::unique_ptr<BeatCall>& call);
  void begin_stream(grpc::ClientContext& context, grpc::CompletionQueue& queue, std::unique_ptr<TaskCall>& call);
  void end(grpc::ClientContext& context);
  /// The controller may be elsewhere by now. Returns at once.
  void look_for_controller();

  /// Calls and streams under way, and all later ones, end at once with CANCELLED.
  void cancel();

 private:
  /// A look into the file that outlives this client if the disk stands still.
  struct Look {
    std::mutex mutex;
    bool is_under_way = false;
    std::optional<Endpoint> found;
  };
  /// False: cancel() was called. end() must follow all the same.
  bool begin(grpc::ClientContext& context);
  /// The stub of the newest known address.
  std::shared_ptr<Stub> stub();

  const std::string authorization_, file_;
  const std::shared_ptr<Look> look_ = std::make_shared<Look>();
  mutable std::mutex mutex_;
  Endpoint controller_;
  std::shared_ptr<Stub> stub_;
  std::set<grpc::ClientContext*> under_way_;
  bool cancelled_ = false;
};

/// One stream of requests to the controller: the heartbeats of a rank, or what the task beside it tells.
///
/// States: opening -> open -> ended. One thread at a time writes. A thread of its own reads the answers, and tells when
/// the stream has ended. A stream that has ended stays so.
template <typename Request, typename Response>
class GrpcStream {
 public:
  using Millis = std::chrono::milliseconds;

  /// `answered` and `ended` are called by the stream's own thread, with no lock held.
  GrpcStream(GrpcClient& client, std::function<void(const Response&)> answered, std::function<void()> ended)
      : client_(client), answered_(std::move(answered)), ended_(std::move(ended)) {
    // First, since a system that has no thread left refuses.
    thread_ = std::thread([this] { run(); });
    client_.begin_stream(context_, queue_, call_);
    call_->StartCall(tag(Done::kOpen));
  }

  /// Cancels what is under way.
  ~GrpcStream() {
    context_.TryCancel();
    thread_.join();
    client_.end(context_);
  }
  GrpcStream(const GrpcStream&) = delete;
  GrpcStream& operator=(const GrpcStream&) = delete;

  /// False: the stream has ended, or takes nothing within `limit` and is of no use any more.
  bool write(const Request& request, Millis limit) {
    const auto until = std::chrono::steady_clock::now() + limit;
    std::unique_lock lock(mutex_);
    const auto may_write = [&] { return is_ending_ || (is_open_ && !is_writing_); };
    if (!changed_.wait_until(lock, until, may_write) || is_ending_) return false;
    is_writing_ = true;
    ++written_;
    call_->Write(request, tag(Done::kWrite));
    return changed_.wait_until(lock, until, [&] { return is_ending_ || !is_writing_; }) && !is_ending_;
  }

  /// How the stream has ended; nullopt: it has not.
  std::optional<grpc::Status> end() const {
    std::lock_guard lock(mutex_);
    return end_;
  }
  /// Requests written so far. Of the writing thread.
  std::uint64_t written() const { return written_; }

 private:
  enum class Done : std::intptr_t { kOpen = 1, kRead, kWrite, kEnd };
  static void* tag(Done what) { return reinterpret_cast<void*>(what); }

  void run() {
    void* what = nullptr;
    bool ok = false;
    const auto finish = [&] {
      if (std::exchange(is_ending_, true)) return;
      call_->Finish(&status_, tag(Done::kEnd));
    };
    while (queue_.Next(&what, &ok)) {
      if (what == tag(Done::kRead) && ok) answered_(answer_);
      bool has_ended = false;
      {
        std::lock_guard lock(mutex_);
        if (what == tag(Done::kWrite)) {
          is_writing_ = false;
        } else if (what == tag(Done::kEnd)) {
          end_ = status_;
          has_ended = true;
        } else if (!ok) {
          finish();
        } else {
          is_open_ = true;
          call_->Read(&answer_, tag(Done::kRead));
        }
        changed_.notify_all();
      }
      if (!has_ended) continue;
      client_.look_for_controller();
      ended_();
      queue_.Shutdown();
    }
  }

  GrpcClient& client_;
  const std::function<void(const Response&)> answered_;
  const std::function<void()> ended_;
  grpc::ClientContext context_;
  grpc::CompletionQueue queue_;
  std::unique_ptr<grpc::ClientAsyncReaderWriter<Request, Response>> call_;
  Response answer_;
  grpc::Status status_;
  std::uint64_t written_ = 0;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  bool is_open_ = false, is_writing_ = false, is_ending_ = false;
  std::optional<grpc::Status> end_;
  std::thread thread_;
};

using BeatStream = GrpcStream<muster::v1::HeartbeatRequest, muster::v1::BeatResponse>;
using TaskStream = GrpcStream<muster::v1::TaskRequest, muster::v1::TaskResponse>;

}  // namespace agent::rank
