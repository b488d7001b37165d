#include "agent/rank/grpc/grpc_client.h"

#include <utility>

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

grpc::Status GrpcClient::call(const muster::v1::RendezvousRequest& request, muster::v1::RendezvousResponse& response,
                              Millis limit) {
  return run(limit, [&](grpc::ClientContext* context) { return stub_->Rendezvous(context, request, &response); });
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

namespace {

enum class Done : std::intptr_t { kOpen = 1, kRead, kWrite, kEnd };

void* tag(Done what) {
  return reinterpret_cast<void*>(what);
}

}  // namespace

template <typename Request, typename Response>
GrpcStream<Request, Response>::GrpcStream(GrpcClient& client, std::function<void(const Response&)> answered,
                                          std::function<void()> ended)
    : client_(client), answered_(std::move(answered)), ended_(std::move(ended)) {
  // First, since a system that has no thread left refuses.
  thread_ = std::thread([this] { run(); });
  client_.begin_stream(context_, queue_, call_);
  call_->StartCall(tag(Done::kOpen));
}

template <typename Request, typename Response>
GrpcStream<Request, Response>::~GrpcStream() {
  context_.TryCancel();
  thread_.join();
  client_.end_stream(context_);
}

template <typename Request, typename Response>
bool GrpcStream<Request, Response>::write(const Request& request, Millis limit) {
  const auto until = std::chrono::steady_clock::now() + limit;
  std::unique_lock lock(mutex_);
  const auto may_write = [&] { return is_ending_ || (is_open_ && !is_writing_); };
  if (!changed_.wait_until(lock, until, may_write) || is_ending_) return false;
  is_writing_ = true;
  ++written_;
  call_->Write(request, tag(Done::kWrite));
  return changed_.wait_until(lock, until, [&] { return is_ending_ || !is_writing_; }) && !is_ending_;
}

template <typename Request, typename Response>
std::optional<grpc::Status> GrpcStream<Request, Response>::end() const {
  std::lock_guard lock(mutex_);
  return end_;
}

template <typename Request, typename Response>
void GrpcStream<Request, Response>::run() {
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
    ended_();
    queue_.Shutdown();
  }
}

template class GrpcStream<muster::v1::HeartbeatRequest, muster::v1::BeatResponse>;
template class GrpcStream<muster::v1::TaskRequest, muster::v1::TaskResponse>;

}  // namespace agent::rank
