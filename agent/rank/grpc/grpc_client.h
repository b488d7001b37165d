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

#include "agent/rank/meeting.h"
#include "muster/v1/rank_service.grpc.pb.h"

namespace agent::rank {

/// RankService of one controller over one channel. Every call has a deadline, a stream has none. Thread-safe.
class GrpcClient {
 public:
  using Millis = std::chrono::milliseconds;

  GrpcClient(const Endpoint& controller, std::string token);

  grpc::Status call(const muster::v1::RegisterRequest& request, muster::v1::RegisterResponse& response, Millis limit);
  grpc::Status call(const muster::v1::RendezvousRequest& request, muster::v1::RendezvousResponse& response,
                    Millis limit);
  grpc::Status call(const muster::v1::KeepStackRequest& request, muster::v1::KeepStackResponse& response, Millis limit);

  using BeatCall = grpc::ClientAsyncReaderWriter<muster::v1::HeartbeatRequest, muster::v1::BeatResponse>;
  using TaskCall = grpc::ClientAsyncReaderWriter<muster::v1::TaskRequest, muster::v1::TaskResponse>;
  /// `call` becomes a stream that is not started yet. end_stream() must be called before `context` goes.
  void begin_stream(grpc::ClientContext& context, grpc::CompletionQueue& queue, std::unique_ptr<BeatCall>& call);
  void begin_stream(grpc::ClientContext& context, grpc::CompletionQueue& queue, std::unique_ptr<TaskCall>& call);
  void end_stream(grpc::ClientContext& context);

  /// Calls and streams under way, and all later ones, end at once with CANCELLED.
  void cancel();

 private:
  template <typename Method>
  grpc::Status run(Millis limit, const Method& method);
  void begin(grpc::ClientContext& context);

  std::string authorization_;
  std::unique_ptr<muster::v1::RankService::Stub> stub_;
  std::mutex mutex_;
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
  GrpcStream(GrpcClient& client, std::function<void(const Response&)> answered, std::function<void()> ended);
  /// Cancels what is under way.
  ~GrpcStream();
  GrpcStream(const GrpcStream&) = delete;
  GrpcStream& operator=(const GrpcStream&) = delete;

  /// False: the stream has ended, or takes nothing within `limit` and is of no use any more.
  bool write(const Request& request, Millis limit);
  /// How the stream has ended; nullopt: it has not.
  std::optional<grpc::Status> end() const;
  /// Requests written so far. Of the writing thread.
  std::uint64_t written() const { return written_; }

 private:
  void run();

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
