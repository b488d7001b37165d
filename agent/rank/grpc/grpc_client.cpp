#include "agent/rank/grpc/grpc_client.h"

namespace agent::rank {
namespace {

constexpr int kReconnectFirstMs = 100;
constexpr int kReconnectMostMs = 1'000;
constexpr int kConnectWithinMs = 2'000;
/// The controller allows one ping every 5 s.
constexpr int kKeepaliveMs = 10'000;
constexpr int kKeepaliveTimeoutMs = 5'000;

std::shared_ptr<grpc::Channel> open_channel(const Endpoint& controller) {
  grpc::ChannelArguments arguments;
  // Clusters set http_proxy for downloads; the controller is never behind it.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // No TXT query for each look-up of the host.
  arguments.SetInt(GRPC_ARG_SERVICE_CONFIG_DISABLE_RESOLUTION, 1);
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, kReconnectFirstMs);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, kReconnectMostMs);
  // In gRPC 1.51 this is how long one attempt to connect may take.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, kConnectWithinMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
  arguments.SetInt(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
  arguments.SetInt(GRPC_ARG_HTTP2_MAX_PINGS_WITHOUT_DATA, 0);
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  return grpc::CreateCustomChannel(to_string(controller), grpc::InsecureChannelCredentials(), arguments);
}

}  // namespace

GrpcClient::GrpcClient(const Endpoint& controller, std::string token)
    : authorization_("Bearer " + std::move(token)), stub_(muster::v1::RankService::NewStub(open_channel(controller))) {}

template <typename Method>
grpc::Status GrpcClient::run(Millis limit, const Method& method) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + limit);
  context.AddMetadata("authorization", authorization_);
  {
    std::lock_guard lock(mutex_);
    if (cancelled_) return {grpc::StatusCode::CANCELLED, "cancelled"};
    under_way_.insert(&context);
  }
  const grpc::Status status = method(&context);
  std::lock_guard lock(mutex_);
  under_way_.erase(&context);
  return status;
}

grpc::Status GrpcClient::call(const muster::v1::RegisterRequest& request, muster::v1::RegisterResponse& response,
                              Millis limit) {
  return run(limit, [&](grpc::ClientContext* context) { return stub_->Register(context, request, &response); });
}

grpc::Status GrpcClient::call(const muster::v1::HeartbeatRequest& request, muster::v1::HeartbeatResponse& response,
                              Millis limit) {
  return run(limit, [&](grpc::ClientContext* context) { return stub_->Heartbeat(context, request, &response); });
}

grpc::Status GrpcClient::call(const muster::v1::RendezvousRequest& request, muster::v1::RendezvousResponse& response,
                              Millis limit) {
  return run(limit, [&](grpc::ClientContext* context) { return stub_->Rendezvous(context, request, &response); });
}

grpc::Status GrpcClient::call(const muster::v1::TaskRequest& request, muster::v1::TaskResponse& response,
                              Millis limit) {
  return run(limit, [&](grpc::ClientContext* context) { return stub_->Task(context, request, &response); });
}
grpc::Status GrpcClient::call(const muster::v1::KeepStackRequest& request, muster::v1::KeepStackResponse& response,
                              Millis limit) {
  return run(limit, [&](grpc::ClientContext* context) { return stub_->KeepStack(context, request, &response); });
}

void GrpcClient::begin_stream(grpc::ClientContext& context, grpc::CompletionQueue& queue,
                              std::unique_ptr<BeatCall>& call) {
  begin(context);
  call = stub_->PrepareAsyncBeat(&context, &queue);
}

void GrpcClient::begin_stream(grpc::ClientContext& context, grpc::CompletionQueue& queue,
                              std::unique_ptr<TaskCall>& call) {
  begin(context);
  call = stub_->PrepareAsyncFollowTask(&context, &queue);
}

void GrpcClient::begin(grpc::ClientContext& context) {
  context.AddMetadata("authorization", authorization_);
  std::lock_guard lock(mutex_);
  if (cancelled_) context.TryCancel();
  under_way_.insert(&context);
}

void GrpcClient::end_stream(grpc::ClientContext& context) {
  std::lock_guard lock(mutex_);
  under_way_.erase(&context);
}

void GrpcClient::cancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
  for (auto* context : under_way_) context->TryCancel();
}

}  // namespace agent::rank
