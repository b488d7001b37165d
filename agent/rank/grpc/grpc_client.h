#pragma once

#include <grpcpp/grpcpp.h>

#include <chrono>
#include <memory>
#include <mutex>
#include <set>
#include <string>

#include "agent/rank/endpoint.h"
#include "muster/v1/rank_service.grpc.pb.h"

namespace agent::rank {

/// RankService of one controller over one channel. Every call has a deadline, a stream has none. Thread-safe.
class GrpcClient {
 public:
  using Millis = std::chrono::milliseconds;

  GrpcClient(const Endpoint& controller, std::string token);

  grpc::Status call(const muster::v1::RegisterRequest& request, muster::v1::RegisterResponse& response, Millis limit);
  grpc::Status call(const muster::v1::HeartbeatRequest& request, muster::v1::HeartbeatResponse& response, Millis limit);
  grpc::Status call(const muster::v1::RendezvousRequest& request, muster::v1::RendezvousResponse& response,
                    Millis limit);
  grpc::Status call(const muster::v1::TaskRequest& request, muster::v1::TaskResponse& response, Millis limit);
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

}  // namespace agent::rank
