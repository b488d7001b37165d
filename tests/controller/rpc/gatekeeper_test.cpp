// Goal: the gate knows whose place a connection takes, and lets no rank in that the job does not have.
// Method: first calls as the gate has read them.
#include "controller/rpc/rpc_server.h"

#include <gtest/gtest.h>

#include "muster/v1/rank_service.pb.h"
#include "tests/controller/rpc/fake_controller.h"

namespace {

class ControllerOfRanks final : public rpc::testing::FakeController {
 public:
  explicit ControllerOfRanks(std::uint32_t count) : count_(count) {}
  std::uint32_t ranks_of(core::JobId) const override { return count_; }

 private:
  const std::uint32_t count_;
};

net::FirstCall call_of_rank(std::uint32_t rank) {
  muster::v1::HeartbeatRequest beat;
  beat.mutable_key()->set_job_id(7);
  beat.mutable_key()->set_attempt(2);
  beat.mutable_key()->set_rank(rank);
  net::FirstCall call;
  call.path = "/muster.v1.RankService/Heartbeat";
  call.token = rpc::testing::FakeController::kRankToken;
  call.message = beat.SerializeAsString();
  return call;
}

}  // namespace

TEST(Gatekeeper, CountsARankForItsAttempt) {
  const ControllerOfRanks controller(2);
  const auto verdict = rpc::judge(controller, call_of_rank(1));
  EXPECT_EQ(verdict.party, net::Party::kRank);
  EXPECT_EQ(verdict.whose, "job 7 attempt 2");
  EXPECT_EQ(verdict.ranks, 2U);
}

TEST(Gatekeeper, ARankThatTheJobDoesNotHaveStaysOutside) {
  const ControllerOfRanks controller(2), after_a_restart(0);
  const auto verdict = rpc::judge(controller, call_of_rank(2));
  EXPECT_EQ(verdict.party, std::nullopt);
  EXPECT_EQ(verdict.text, "rank 2 of a job with 2 ranks");
  EXPECT_EQ(rpc::judge(after_a_restart, call_of_rank(2)).party, net::Party::kRank) << "nobody knows yet";
}
