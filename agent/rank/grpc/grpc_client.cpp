#include "agent/rank/grpc/grpc_client.h"

#include <stdexcept>
#include <system_error>

#include "agent/protocol/controller_place.h"
#include "base/signals_blocked.h"

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

GrpcClient::GrpcClient(const ControllerPlace& controller, std::string token)
    : authorization_("Bearer " + std::move(token)), file_(controller.file), controller_(controller.told) {
  stub_ = muster::v1::RankService::NewStub(open_channel(controller_));
}

Endpoint GrpcClient::controller() const {
  std::lock_guard lock(mutex_);
  return controller_;
}

bool GrpcClient::begin(grpc::ClientContext& context) {
  context.AddMetadata("authorization", authorization_);
  std::lock_guard lock(mutex_);
  under_way_.insert(&context);
  return !cancelled_;
}

std::shared_ptr<GrpcClient::Stub> GrpcClient::stub() {
  std::scoped_lock lock(mutex_, look_->mutex);
  if (look_->found && *look_->found != controller_) {
    controller_ = *look_->found;
    stub_ = muster::v1::RankService::NewStub(open_channel(controller_));
  }
  return stub_;
}

void GrpcClient::look_for_controller() {
  if (file_.empty()) return;
  {
    std::lock_guard lock(look_->mutex);
    if (std::exchange(look_->is_under_way, true)) return;
  }
  const auto read = [look = look_, file = file_] {
    std::optional<Endpoint> found;
    try {
      found = parse_endpoint(protocol::advertised_in(file));
    } catch (const std::invalid_argument&) {  // no controller is ready
    }
    std::lock_guard lock(look->mutex);
    look->is_under_way = false;
    if (found) look->found = found;
  };
  try {
    const base::SignalsBlocked quiet;  // signals are the main thread's
    std::thread(read).detach();
  } catch (const std::system_error&) {  // no thread is left on this machine
    std::lock_guard lock(look_->mutex);
    look_->is_under_way = false;
  }
}

void GrpcClient::end(grpc::ClientContext& context) {
  std::lock_guard lock(mutex_);
  under_way_.erase(&context);
}

void GrpcClient::begin_stream(grpc::ClientContext& context, grpc::CompletionQueue& queue,
                              std::unique_ptr<BeatCall>& call) {
  if (!begin(context)) context.TryCancel();
  call = stub()->PrepareAsyncBeat(&context, &queue);
}

void GrpcClient::begin_stream(grpc::ClientContext& context, grpc::CompletionQueue& queue,
                              std::unique_ptr<TaskCall>& call) {
  if (!begin(context)) context.TryCancel();
  call = stub()->PrepareAsyncFollowTask(&context, &queue);
}

void GrpcClient::cancel() {
  std::lock_guard lock(mutex_);
  cancelled_ = true;
  for (auto* context : under_way_) context->TryCancel();
}

}  // namespace agent::rank
