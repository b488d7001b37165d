#include "rpc/server.h"

#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <mutex>
#include <stdexcept>

#include "rpc/bind_check.h"
#include "rpc/job_service.h"
#include "rpc/rank_service.h"

namespace rpc {
namespace {

constexpr std::chrono::seconds kShutdownGrace{1};
constexpr int kKeepaliveMs = 20'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
/// Ranks ping every 10 s; who pings more often than this is cut off.
constexpr int kLeastPingIntervalMs = 5'000;

class GrpcServer final : public Server {
 public:
  GrpcServer(runtime::Controller& controller, const std::string& address)
      : streams_(kMaxStreams), jobs_(controller, streams_), admin_(controller), ranks_(controller) {
    if (const auto why = why_not_bindable(address); !why.empty()) throw std::runtime_error(why);
    grpc::ServerBuilder builder;
    limit(builder);
    builder.AddListeningPort(address, grpc::InsecureServerCredentials(), &port_);
    builder.RegisterService(&jobs_);
    builder.RegisterService(&admin_);
    builder.RegisterService(&ranks_);
    server_ = builder.BuildAndStart();
    if (server_ && port_ != 0) return;
    // Somebody was faster between the check and the bind.
    const auto why = why_not_bindable(address);
    throw std::runtime_error(why.empty() ? "cannot listen on " + address + ": choose another address or port" : why);
  }
  ~GrpcServer() override { shutdown(); }

  int port() const override { return port_; }
  std::size_t open_streams() const override { return streams_.open(); }

  void shutdown() override {
    std::lock_guard lock(shutdown_mutex_);
    if (!server_) return;
    streams_.stop();
    ranks_.stop_waiting();
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
    server_->Wait();
    server_.reset();
  }

 private:
  static void limit(grpc::ServerBuilder& builder) {
    // Without this a second daemon would bind the same port, and each would get half of the calls.
    builder.AddChannelArgument(GRPC_ARG_ALLOW_REUSEPORT, 0);
    builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
    grpc::ResourceQuota quota("musterd");
    quota.SetMaxThreads(kMaxStreams + kMaxPeopleCalls);
    builder.SetResourceQuota(quota);
    builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kLeastPingIntervalMs);
  }

  int port_ = 0;
  Streams streams_;
  JobService jobs_;
  AdminService admin_;
  RankService ranks_;
  std::mutex shutdown_mutex_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

std::unique_ptr<Server> serve(runtime::Controller& controller, const std::string& address) {
  return std::make_unique<GrpcServer>(controller, address);
}

}  // namespace rpc
