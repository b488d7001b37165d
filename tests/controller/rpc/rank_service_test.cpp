#include <algorithm>
#include <functional>
#include <thread>

#include "tests/controller/rpc/harness.h"

namespace {

using namespace rpc::testing;  // NOLINT
using grpc::StatusCode;
using muster::v1::RankKey;

RankKey key(std::uint32_t rank) {
  RankKey k;
  k.set_job_id(1);
  k.set_attempt(1);
  k.set_rank(rank);
  return k;
}

muster::v1::RendezvousRequest meeting(std::uint32_t rank, const std::string& endpoint = "") {
  muster::v1::RendezvousRequest request;
  *request.mutable_key() = key(rank);
  request.set_endpoint(endpoint);
  return request;
}

/// How long a rank waits for one answer.
constexpr auto kPatience = 2s;

/// The time that `go` takes. A busy machine may hold it up, so it has three tries to take less than the patience.
Clock::duration least_of_three(const std::function<void()>& go) {
  auto least = Clock::duration::max();
  for (int i = 0; i < 3 && least >= kPatience; ++i) {
    const auto begin = Clock::now();
    go();
    least = std::min(least, Clock::now() - begin);
  }
  return least;
}

TEST_F(Rpc, RanksShowTheirAttemptsTokenToTheController) {
  muster::v1::HeartbeatRequest request;
  *request.mutable_key() = key(0);
  muster::v1::HeartbeatResponse response;
  Call stranger("nonsense");
  const auto refused = ranks_->Heartbeat(&stranger, request, &response);
  EXPECT_EQ(refused.error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(refused.error_message(), "this is not the token of job 1 attempt 1");
  EXPECT_TRUE(controller_.rank_tokens.empty()) << "the gate refuses the first call of a connection";
  Call rank(FakeController::kRankToken);
  EXPECT_TRUE(ranks_->Heartbeat(&rank, request, &response).ok());
  Call people;
  EXPECT_EQ(ranks_->Heartbeat(&people, request, &response).error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(controller_.rank_tokens, (std::set<std::string>{FakeController::kPeopleToken, FakeController::kRankToken}))
      << "later calls are the controller's to judge";
}

TEST_F(Rpc, HeartbeatsHaveLimits) {
  muster::v1::HeartbeatRequest request;
  *request.mutable_key() = key(0);
  for (int i = 0; i < 512; ++i) request.add_metrics()->set_step(i);
  muster::v1::HeartbeatResponse response;
  Call fitting(FakeController::kRankToken);
  EXPECT_TRUE(ranks_->Heartbeat(&fitting, request, &response).ok());
  EXPECT_EQ(response.metrics_accepted(), 512u);
  request.add_metrics()->set_step(513);
  Call over(FakeController::kRankToken);
  const auto status = ranks_->Heartbeat(&over, request, &response);
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_NE(status.error_message().find("at most 512"), std::string::npos);
  Call nobody(FakeController::kRankToken);
  EXPECT_EQ(ranks_->Heartbeat(&nobody, {}, &response).error_code(), StatusCode::INVALID_ARGUMENT);
}

TEST_F(Rpc, WhatStandsBesideARankReportsWithTheSameTokenAndLimits) {
  muster::v1::TaskRequest request;
  *request.mutable_key() = key(3);
  request.set_state(muster::v1::PROCESS_EXITED);
  request.set_signal(9);
  for (int i = 0; i < 64; ++i) request.add_signals_seen(15);
  muster::v1::TaskResponse response;
  Call people;
  EXPECT_EQ(ranks_->Task(&people, request, &response).error_code(), StatusCode::UNAUTHENTICATED);
  controller_.set_directive(muster::v1::DIRECTIVE_STOP);
  Call rank(FakeController::kRankToken);
  ASSERT_TRUE(ranks_->Task(&rank, request, &response).ok());
  EXPECT_EQ(response.directive(), muster::v1::DIRECTIVE_STOP);
  EXPECT_EQ(response.interval_ms(), 20);
  ASSERT_EQ(controller_.tasks.size(), 1U);
  EXPECT_EQ(controller_.tasks[0].SerializeAsString(), request.SerializeAsString());

  const auto code = [&](const muster::v1::TaskRequest& bad) {
    Call call(FakeController::kRankToken);
    return ranks_->Task(&call, bad, &response).error_code();
  };
  auto many = request;
  many.add_signals_seen(15);
  EXPECT_EQ(code(many), StatusCode::INVALID_ARGUMENT);
  auto wordy = request;
  wordy.set_node(std::string(4097, 'n'));
  EXPECT_EQ(code(wordy), StatusCode::INVALID_ARGUMENT);
  for (const auto& set : std::initializer_list<void (*)(muster::v1::TaskRequest&)>{
           [](auto& bad) { bad.set_trouble(std::string(4097, 't')); },
           [](auto& bad) { bad.set_slurm_job(std::string(513, '7')); },
           [](auto& bad) { bad.set_error(std::string((64 << 10) + 1, 'e')); }}) {
    auto bad = request;
    set(bad);
    EXPECT_EQ(code(bad), StatusCode::INVALID_ARGUMENT);
  }
  EXPECT_EQ(code({}), StatusCode::INVALID_ARGUMENT);
  EXPECT_EQ(controller_.tasks.size(), 1U);
}

TEST_F(Rpc, TheRendezvousTellsRankZerosAddressAtOnceToWhoeverWaits) {
  std::vector<std::thread> waiters;
  std::vector<std::string> answers(100);
  std::vector<Clock::time_point> asked_in_vain(answers.size());  // when the newest such call was made
  // A connection of a rank has sixteen calls at most.
  std::vector<std::unique_ptr<muster::v1::RankService::Stub>> stubs(10);
  for (auto& stub : stubs) stub = muster::v1::RankService::NewStub(connect(server_->port()));
  for (std::uint32_t rank = 1; rank < answers.size(); ++rank) {
    waiters.emplace_back([&, rank] {
      muster::v1::RendezvousResponse response;
      // A rank asks again until it gets an answer.
      for (int i = 0; i < 5 && response.endpoint().empty(); ++i) {
        Call again(FakeController::kRankToken);
        const auto asked_at = Clock::now();
        ASSERT_TRUE(stubs[rank % stubs.size()]->Rendezvous(&again, meeting(rank), &response).ok());
        if (response.endpoint().empty()) asked_in_vain[rank] = asked_at;
      }
      answers[rank] = response.endpoint();
    });
  }
  std::this_thread::sleep_for(200ms);  // most ranks wait by now; the test is right either way
  Call call(FakeController::kRankToken);
  muster::v1::RendezvousResponse response;
  EXPECT_TRUE(ranks_->Rendezvous(&call, meeting(0, "10.0.0.1:29500"), &response).ok());
  const auto told_at = Clock::now();
  for (auto& waiter : waiters) waiter.join();
  for (const auto& asked_at : asked_in_vain) {
    EXPECT_LE(asked_at + kPatience, told_at) << "a call that was open when rank 0 spoke sat out its patience";
  }
  answers[0] = response.endpoint();
  EXPECT_EQ(answers, std::vector<std::string>(100, "10.0.0.1:29500"));
}

TEST_F(Rpc, AWaitAtTheRendezvousEndsAfterTwoSecondsWithoutAnswer) {
  Call call(FakeController::kRankToken);
  muster::v1::RendezvousResponse response;
  const auto begin = Clock::now();
  ASSERT_TRUE(ranks_->Rendezvous(&call, meeting(1), &response).ok());
  EXPECT_EQ(response.endpoint(), "");
  EXPECT_GE(Clock::now() - begin, 1900ms);
  EXPECT_LT(Clock::now() - begin, 4s);
}

TEST_F(Rpc, AFencedRankDoesNotWaitAtTheRendezvous) {
  controller_.set_directive(muster::v1::DIRECTIVE_STOP);
  const auto took = least_of_three([&] {
    Call call(FakeController::kRankToken);
    muster::v1::RendezvousResponse response;
    ASSERT_TRUE(ranks_->Rendezvous(&call, meeting(1), &response).ok());
    EXPECT_EQ(response.directive(), muster::v1::DIRECTIVE_STOP);
  });
  EXPECT_LT(took, kPatience);
}

TEST_F(Rpc, ShutdownDoesNotWaitForTheRendezvous) {
  const auto took = least_of_three([&] {
    const auto server = rpc::serve(controller_, "127.0.0.1:0");
    const auto ranks = muster::v1::RankService::NewStub(connect(server->port()));
    std::thread waiter([&] {
      Call call(FakeController::kRankToken);
      muster::v1::RendezvousResponse response;
      static_cast<void>(ranks->Rendezvous(&call, meeting(1), &response));
    });
    std::this_thread::sleep_for(100ms);  // the rank waits by now; the test is right either way
    server->shutdown();
    waiter.join();
  });
  EXPECT_LT(took, kPatience) << "with the time before the shutdown";
}

// Goal: the ranks of a whole cluster neither exhaust the threads nor get an error.
// Method: 300 clients, each with its own connection, send a heartbeat every 100 ms for 2 s, five times as often as
// ranks.
TEST_F(Rpc, ThreeHundredRanksHeartbeatWithoutErrors) {
  constexpr int kRanks = 300;
  struct Client {
    std::unique_ptr<muster::v1::RankService::Stub> stub;
    muster::v1::HeartbeatRequest request;
    muster::v1::HeartbeatResponse response;
    std::unique_ptr<Call> call;
    std::atomic<bool> busy{false};
  };
  std::vector<std::unique_ptr<Client>> clients;
  for (std::uint32_t rank = 0; rank < kRanks; ++rank) {
    auto client = std::make_unique<Client>();
    client->stub = muster::v1::RankService::NewStub(connect(server_->port()));
    *client->request.mutable_key() = key(rank);
    clients.push_back(std::move(client));
  }
  std::atomic<int> errors{0}, done{0};
  int sent = 0;
  const auto until = Clock::now() + 2s;
  for (auto next = Clock::now(); next < until; next += 100ms) {
    std::this_thread::sleep_until(next);
    for (auto& client : clients) {
      if (client->busy.exchange(true)) continue;
      client->call = std::make_unique<Call>(FakeController::kRankToken);
      ++sent;
      client->stub->async()->Heartbeat(client->call.get(), &client->request, &client->response,
                                       [&, c = client.get()](const grpc::Status& status) {
                                         if (!status.ok()) ++errors;
                                         ++done;
                                         c->busy = false;
                                       });
    }
  }
  const auto give_up = Clock::now() + 10s;
  while (done < sent && Clock::now() < give_up) std::this_thread::sleep_for(10ms);
  EXPECT_EQ(done, sent);
  EXPECT_EQ(errors, 0);
  EXPECT_GE(sent, kRanks);
  EXPECT_EQ(controller_.heartbeats.size(), static_cast<std::size_t>(kRanks));
}

}  // namespace
