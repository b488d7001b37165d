#include "rpc/server.h"

#include <absl/synchronization/mutex.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>

#include <mutex>
#include <stdexcept>

#include "net/listener.h"
#include "rpc/services.h"

namespace rpc {
namespace {

constexpr std::chrono::seconds kShutdownGrace{1};
constexpr int kKeepaliveMs = 20'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
/// A client that pings more often than this is cut off. Ranks ping every 10 s.
constexpr int kLeastPingIntervalMs = 5'000;

class GrpcServer final : public Server {
 public:
  GrpcServer(service::Controller& controller, const std::string& address, std::shared_ptr<net::Connections> connections)
      : listener_(address, connections),
        callers_(controller, *connections, listener_.port()),
        streams_(kMaxStreams),
        jobs_(make_job_service(controller, callers_, streams_)),
        admin_(make_admin_service(controller, callers_)) {
    if (auto* reading = controller.reading()) {
      probe_ = std::make_unique<ReadingProbe>(*reading, [this](int socket) { hand_over(socket); });
    }
    ranks_ = make_rank_service(controller, callers_, probe_.get());
    grpc::ServerBuilder builder;
    limit(builder);
    // gRPC's own listener closes a port for ever once the process has run out of descriptors.
    connections_to_grpc_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
    for (auto* service : {jobs_.get(), admin_.get(), ranks_.calls.get()}) builder.RegisterService(service);
    server_ = builder.BuildAndStart();
    if (!server_) throw std::runtime_error("cannot serve gRPC on " + address + ": see the lines above");
  }
  ~GrpcServer() override { shutdown(); }

  /// If it throws, the destructor stops what has begun: the probe must not hand over to an acceptor that is gone.
  void start() {
    if (probe_) probe_->start();
    listener_.start([this](int socket) { hand_over(socket); });
  }

  int port() const override { return listener_.port(); }
  void reopen() override { listener_.reopen(); }
  std::size_t open_streams() const override { return streams_.open(); }

  void shutdown() override {
    std::lock_guard lock(shutdown_mutex_);
    if (!server_) return;
    listener_.stop();
    streams_.stop();
    if (probe_) probe_->stop();
    ranks_.stop();
    server_->Shutdown(std::chrono::system_clock::now() + kShutdownGrace);
    server_->Wait();
    server_.reset();
  }

 private:
  void hand_over(int socket) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = socket;
    connections_to_grpc_->HandleNewConnection(&connection);
  }

  static void limit(grpc::ServerBuilder& builder) {
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
    builder.SetMaxReceiveMessageSize(kMaxRequestBytes);
    grpc::ResourceQuota quota("musterd");
    quota.SetMaxThreads(kMaxStreams + kMaxPeopleCalls);
    builder.SetResourceQuota(quota);
    builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIME_MS, kKeepaliveMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_TIMEOUT_MS, kKeepaliveTimeoutMs);
    builder.AddChannelArgument(GRPC_ARG_KEEPALIVE_PERMIT_WITHOUT_CALLS, 1);
    builder.AddChannelArgument(GRPC_ARG_ENABLE_CHANNELZ, 0);
    // A stream of heartbeats is thin. Measuring its bandwidth would cost a ping for most of them.
    builder.AddChannelArgument(GRPC_ARG_HTTP2_BDP_PROBE, 0);
    builder.AddChannelArgument(GRPC_ARG_HTTP2_MIN_RECV_PING_INTERVAL_WITHOUT_DATA_MS, kLeastPingIntervalMs);
  }

  net::Listener listener_;
  Callers callers_;
  Streams streams_;
  std::unique_ptr<ReadingProbe> probe_;
  const std::unique_ptr<grpc::Service> jobs_, admin_;
  RankService ranks_;
  std::mutex shutdown_mutex_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> connections_to_grpc_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace

std::unique_ptr<Server> serve(service::Controller& controller, const std::string& address,
                              std::shared_ptr<net::Connections> connections) {
  // Debian builds Abseil with a search for deadlocks at every lock, which takes a tenth of a heartbeat's time.
  absl::SetMutexDeadlockDetectionMode(absl::OnDeadlockCycle::kIgnore);
  if (!connections) connections = net::connections_of_this_process();
  auto server = std::make_unique<GrpcServer>(controller, address, std::move(connections));
  server->start();
  return server;
}

}  // namespace rpc
