#include "controller/rpc/rpc_server.h"

#include <fcntl.h>
#include <grpcpp/grpcpp.h>
#include <grpcpp/resource_quota.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <absl/synchronization/mutex.h>

#include <mutex>
#include <optional>
#include <stdexcept>
#include <vector>

#include "base/fd.h"
#include "base/idle_memory.h"
#include "controller/common/loop.h"
#include "controller/net/listener.h"
#include "controller/rpc/call.h"
#include "controller/rpc/services.h"
#include "muster/v1/rank_service.pb.h"

namespace rpc {
namespace {

/// The key that a request of a rank begins with: every request has it as its first field. Without one, no attempt's.
muster::v1::RankKey key_of(const std::string& message) {
  constexpr char kTag = 1 << 3 | 2;  // field 1, a message
  muster::v1::RankKey key;
  const auto size = message.size() < 2 ? 0 : static_cast<std::size_t>(static_cast<unsigned char>(message[1]));
  const bool is_there = size > 0 && size < 128 && message[0] == kTag && message.size() >= 2 + size;
  if (!is_there || !key.ParseFromArray(message.data() + 2, static_cast<int>(size))) key.Clear();
  return key;
}

net::Gate::Verdict refused(const common::Refusal& refusal) {
  const auto status = failure(refusal);
  return {std::nullopt, "", status.error_code(), status.error_message()};
}

constexpr std::chrono::seconds kShutdownGrace{1};
constexpr int kKeepaliveMs = 20'000;
constexpr int kKeepaliveTimeoutMs = 10'000;
/// A client that pings more often than this is cut off. Ranks ping every 10 s.
constexpr int kLeastPingIntervalMs = 5'000;

/// How often connections are looked at whose messages do not come.
constexpr core::Millis kSweep{1000};
/// How long gRPC's servers stay after the last connection. A person's command is often not the last one, and musterd's
/// own look at its port (SelfProbe, once a minute) must not keep them awake.
constexpr core::Millis kAwakeFor{3000};

/// Descriptors that two servers and musterd's own connection open (5), and some for those that other threads take
/// meanwhile.
constexpr std::size_t kReserve = 8;

/// A message that is a little too long is answered by gRPC with its status; the guard closes the connection of a longer
/// one. Over a slow line a sweep takes its time.
ReadRules rules_of_people() {
  constexpr std::size_t kMessage = kMaxRequestBytes;
  return {{kMessage + (std::size_t{1} << 20), 2 * kMessage, kMaxCallsOfConnection, std::size_t{16} << 10,
           std::chrono::minutes(10)},
          16 * kMessage};
}
ReadRules rules_of_ranks() {
  constexpr std::size_t kMessage = kMaxRankRequestBytes;
  return {{kMessage + (std::size_t{2} << 20), 2 * kMessage, kMaxCallsOfRanksConnection, std::size_t{4} << 10,
           core::Millis(kMessagePatienceMs), kMaxBurstOfRanksConnection},
          kMaxUnfinishedOfRanks};
}

/// A server of gRPC without a port: it serves the connections that it is given.
class Half {
 public:
  Half(const std::vector<grpc::Service*>& services, int most_request_bytes, int most_calls, ReadGuard& guard)
      : guard_(guard) {
    grpc::ServerBuilder builder;
    limit(builder, most_request_bytes);
    builder.AddChannelArgument(GRPC_ARG_MAX_CONCURRENT_STREAMS, most_calls);
    acceptor_ = builder.experimental().AddExternalConnectionAcceptor(
        grpc::ServerBuilder::experimental_type::ExternalConnectionType::FROM_FD, grpc::InsecureServerCredentials());
    for (auto* service : services) builder.RegisterService(service);
    server_ = builder.BuildAndStart();
    if (!server_) throw std::runtime_error("cannot serve gRPC: see the lines above");
  }

  /// A client. `said`: what was read from the socket already. `rank`: whom its first call names.
  void take(int socket, const std::string& said, const std::optional<RankOf>& rank) {
    if (guard_.watch(socket, said, rank, std::chrono::steady_clock::now())) {
      hand_over(socket, said);
    } else {
      ::close(socket);
    }
  }
  /// A connection that is trusted.
  void hand_over(int socket, const std::string& said) {
    grpc::experimental::ExternalConnectionAcceptor::NewConnectionParameters connection;
    connection.fd = socket;
    if (!said.empty()) {
      const grpc::Slice slice(said);
      connection.read_buffer = grpc::ByteBuffer(&slice, 1);
    }
    acceptor_->HandleNewConnection(&connection);
  }
  void shutdown(std::chrono::system_clock::time_point deadline) {
    server_->Shutdown(deadline);
    server_->Wait();
  }

 private:
  static void limit(grpc::ServerBuilder& builder, int most_request_bytes) {
    builder.AddChannelArgument(GRPC_ARG_SERVER_HANDSHAKE_TIMEOUT_MS, kHandshakeMs);
    builder.SetMaxReceiveMessageSize(most_request_bytes);
    grpc::ResourceQuota quota("musterd");
    quota.SetMaxThreads(kMaxPeopleCalls);
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

  ReadGuard& guard_;
  std::unique_ptr<grpc::experimental::ExternalConnectionAcceptor> acceptor_;
  std::unique_ptr<grpc::Server> server_;
};

/// The two servers of gRPC and their services. gRPC's threads and timers tick eight times a second as long as one of
/// its servers is there, whether or not anybody is connected. See GrpcServer, which has them only while somebody is.
struct Serving {
  Serving(service::Controller& controller, const Callers& callers, Followers& followers, ReadGuard& guard_of_people,
          ReadGuard& guard_of_ranks)
      : jobs(make_job_service(controller, callers, followers)), admin(make_admin_service(controller, callers)) {
    if (auto* reading = controller.reading()) {
      // musterd's own words go the way of the ranks.
      probe = std::make_unique<ReadingProbe>(*reading, [this](int socket) { of_ranks->hand_over(socket, ""); });
    }
    ranks = make_rank_service(controller, callers, guard_of_ranks, probe.get());
    of_people.emplace(std::vector<grpc::Service*>{jobs.get(), admin.get()}, kMaxRequestBytes, kMaxCallsOfConnection,
                      guard_of_people);
    of_ranks.emplace(std::vector<grpc::Service*>{ranks.calls.get()}, kMaxRankRequestBytes, kMaxCallsOfRanksConnection,
                     guard_of_ranks);
    if (probe) probe->start();
  }
  // The probe must not hand over to an acceptor that is gone.
  ~Serving() {
    if (probe) probe->stop();
    if (ranks.stop) ranks.stop();
    const auto deadline = std::chrono::system_clock::now() + kShutdownGrace;
    if (of_people) of_people->shutdown(deadline);
    if (of_ranks) of_ranks->shutdown(deadline);
  }
  Serving(const Serving&) = delete;
  Serving& operator=(const Serving&) = delete;

  std::unique_ptr<ReadingProbe> probe;
  const std::unique_ptr<grpc::Service> jobs, admin;
  RankService ranks;
  std::optional<Half> of_people, of_ranks;
};

/// Two servers behind one gate, since gRPC bounds messages for each server alone: people send sweeps, ranks send
/// little. gRPC's own listener is not used: it closes a port for ever once the process has run out of descriptors.
///
/// The servers are asleep while nobody is connected: they end kAwakeFor after the last connection, and the next one
/// that the gate lets in finds new ones. So nobody notices but whoever counts wake-ups or looks at the memory: no rank
/// is connected that would wait for a page from disk.
///
///   awake -- no connection for kAwakeFor --> asleep -- the gate lets one in --> awake -- shutdown() --> closed
class GrpcServer final : public Server {
 public:
  GrpcServer(service::Controller& controller, const std::string& address, std::shared_ptr<net::Connections> connections)
      : controller_(controller),
        gate_(std::make_shared<net::Gate>(
            connections, net::Gate::Rules{kRankCalls, [this](const net::FirstCall& call) { return let_in(call); },
                                          [this](int socket, const net::Newcomer& first, net::Party party) {
                                            take(socket, first, party);
                                          }})),
        listener_(address, gate_),
        callers_(controller, *connections, listener_.port()),
        followers_(controller) {
    awake();
  }
  ~GrpcServer() override { shutdown(); }

  void start() {
    sweep_.start(kSweep);
    listener_.start();
  }

  int port() const override { return listener_.port(); }
  void reopen() override { listener_.reopen(); }
  std::size_t open_streams() const override { return followers_.open(); }

  void shutdown() override {
    std::lock_guard lock(shutdown_mutex_);
    if (closed_) return;
    listener_.stop();
    gate_->close_all();
    sweep_.close();
    followers_.stop();
    const std::lock_guard serving(serving_mutex_);
    serving_.reset();
    closed_ = true;
  }

 private:
  /// Judges as judge() does, and also whether the rank that the call names has a place.
  net::Gate::Verdict let_in(const net::FirstCall& call) {
    auto verdict = judge(controller_, call);
    if (verdict.party != net::Party::kRank) return verdict;
    if (auto full = guard_of_ranks_.why_full(rank_of(call), std::chrono::steady_clock::now()); !full.empty()) {
      return {std::nullopt, "", grpc::StatusCode::RESOURCE_EXHAUSTED, std::move(full)};
    }
    return verdict;
  }

  /// The listener's thread. A client whose connection is closed comes again.
  void take(int socket, const net::Newcomer& first, net::Party party) {
    const std::lock_guard lock(serving_mutex_);
    try {
      awake();
    } catch (const std::exception& e) {
      spdlog::error("a call was turned away: {}", e.what());
      ::close(socket);
      return;
    }
    last_seen_ = std::chrono::steady_clock::now();
    if (party == net::Party::kRank) {
      serving_->of_ranks->take(socket, first.said(), rank_of(first.call()));
    } else {
      serving_->of_people->take(socket, first.said(), std::nullopt);
    }
  }
  void awake() {
    if (serving_) return;
    reserve_.clear();
    serving_.emplace(controller_, callers_, followers_, guard_of_people_, guard_of_ranks_);
    last_seen_ = std::chrono::steady_clock::now();
    sweep_.wake();
  }

  std::optional<core::Millis> sweep() {
    const auto now = std::chrono::steady_clock::now();
    guard_of_people_.sweep(now);
    guard_of_ranks_.sweep(now);
    const std::lock_guard lock(serving_mutex_);
    if (guard_of_people_.counts().open + guard_of_ranks_.counts().open > 0) last_seen_ = now;
    if (now - last_seen_ < kAwakeFor || !has_reserve()) return kSweep;
    serving_.reset();
    base::give_back_idle_memory();
    return std::nullopt;
  }
  /// Takes the descriptors that awake() will need: gRPC ends the process where it begins without any.
  bool has_reserve() {
    while (reserve_.size() < kReserve) {
      base::Fd one(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      if (!one) return false;
      reserve_.push_back(std::move(one));
    }
    return true;
  }

  service::Controller& controller_;
  ReadGuard guard_of_people_{rules_of_people()}, guard_of_ranks_{rules_of_ranks()};
  const std::shared_ptr<net::Gate> gate_;
  net::Listener listener_;
  Callers callers_;
  Followers followers_;
  std::mutex shutdown_mutex_;
  bool closed_ = false;
  std::mutex serving_mutex_;
  std::optional<Serving> serving_;                     // none: asleep
  std::vector<base::Fd> reserve_;                      // while asleep
  std::chrono::steady_clock::time_point last_seen_{};  // a connection
  common::Loop sweep_{"rpc-sweep", "connections whose messages do not come were not closed", true,
                      [this] { return sweep(); }};
};

}  // namespace

net::Gate::Verdict judge(const service::Controller& controller, const net::FirstCall& call) {
  if (!call.path.starts_with(kRankCalls)) {
    if (const auto refusal = refuse_person(controller, call.token)) return refused(*refusal);
    return {net::Party::kPerson, call.user, 0, ""};
  }
  const auto key = key_of(call.message);
  const auto whose = "job " + std::to_string(key.job_id()) + " attempt " + std::to_string(key.attempt());
  if (!controller.is_rank_token({key.job_id(), key.attempt()}, call.token)) {
    return refused({common::Refusal::Kind::kUnauthenticated, "this is not the token of " + whose});
  }
  const auto ranks = controller.ranks_of(key.job_id());
  if (ranks > 0 && key.rank() >= ranks) {
    return refused(common::Refusal::invalid("rank " + std::to_string(key.rank()) + " of a job with " +
                                            std::to_string(ranks) + " ranks"));
  }
  return {net::Party::kRank, whose, 0, "", ranks};
}

RankOf rank_of(const net::FirstCall& call) {
  const auto key = key_of(call.message);
  return {{key.job_id(), key.attempt()}, key.rank()};
}

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
