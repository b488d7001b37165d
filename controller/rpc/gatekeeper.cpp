#include "controller/rpc/gatekeeper.h"

#include "controller/rpc/call.h"
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

}  // namespace rpc
