#pragma once

#include <cstddef>
#include <memory>
#include <string>

#include "controller/net/gate.h"
#include "controller/rpc/read_guard.h"
#include "controller/service/controller.h"

namespace rpc {

/// The calls whose message names the rank: its token is good for one attempt alone.
inline constexpr const char* kRankCalls = "/muster.v1.RankService/";

/// Who makes this call, or why it is refused. Only computes. The controller checks each call again, since a connection
/// may carry calls of several callers.
net::Gate::Verdict judge(const service::Controller& controller, const net::FirstCall& call);
/// The rank that a call of kRankCalls names. Nobody has checked its number.
RankOf rank_of(const net::FirstCall& call);

/// The most calls of people that hold a thread at once. Those with more than one message hold none, see Followers.
inline constexpr int kMaxPeopleCalls = 256;
/// The most calls of ranks that write at once. Concurrent writes share one fsync.
inline constexpr int kRankThreads = 32;
/// The most calls of ranks that wait in the queue. Also the most ranks that wait at the rendezvous.
inline constexpr int kMaxRankCalls = 8192;
/// A client must send its HTTP/2 greeting within this time.
inline constexpr int kHandshakeMs = 10'000;
/// The largest request of people: a sweep of 10,000 jobs. Nobody reaches gRPC without a token, see net::Gate.
inline constexpr int kMaxRequestBytes = 32 * 1024 * 1024;
/// The largest request of a rank: GrpcOutbox::kBatchBytes of steps, as many checkpoints, and its program's settings.
inline constexpr int kMaxRankRequestBytes = 4 * 1024 * 1024;
/// The most calls that one connection of people may have open.
inline constexpr int kMaxCallsOfConnection = 128;
/// The most calls that one connection of a rank may have open. A rank needs two: its stream, and a call beside it.
inline constexpr int kMaxCallsOfRanksConnection = 16;
/// The most calls that begin at once on one connection of a rank, see ReadLimits::burst.
inline constexpr int kMaxBurstOfRanksConnection = 32;
/// The most bytes of messages that are not there yet, of all ranks together. See ReadRules::unfinished_of_all.
inline constexpr std::size_t kMaxUnfinishedOfRanks = std::size_t{8} << 20;
/// A rank's message must be there within this time after its call, or after its first byte.
inline constexpr int kMessagePatienceMs = 15'000;
/// The most metrics of one heartbeat, and the most checkpoints.
inline constexpr int kMaxMetricsAHeartbeat = 512;

/// musterd's gRPC server: the JobService, RankService and AdminService of one controller. Streams are those of people,
/// including followers. At its end streams and waiting ranks are told UNAVAILABLE, and calls that take too long are
/// cancelled.
using net::Server;

/// Serves `controller` on "host:port". The controller must outlive the server. Throws std::runtime_error with address,
/// cause and remedy if the address cannot be bound. An address in use is an error; the port is never shared.
/// `connections` may be shared with other servers. Null: the server uses connections_of_this_process().
std::unique_ptr<Server> serve(service::Controller& controller, const std::string& address,
                              std::shared_ptr<net::Connections> connections = nullptr);

}  // namespace rpc
