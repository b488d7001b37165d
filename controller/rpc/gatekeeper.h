#pragma once

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

}  // namespace rpc
