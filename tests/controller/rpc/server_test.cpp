#include <arpa/inet.h>
#include <sys/socket.h>
#include <unistd.h>

#include "controller/net/connections.h"
#include "tests/controller/rpc/harness.h"

namespace {

using namespace rpc::testing;  // NOLINT
using common::Refusal;
using grpc::StatusCode;
using ::testing::Test;

std::string error_of_serving(FakeController& controller, const std::string& address) {
  try {
    rpc::serve(controller, address);
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return "";
}

TEST(Listening, ASecondServerOnTheSamePortIsRefusedInPlainWords) {
  FakeController controller;
  const auto first = rpc::serve(controller, "127.0.0.1:0");
  const auto address = "127.0.0.1:" + std::to_string(first->port());
  EXPECT_EQ(
      error_of_serving(controller, address),
      "cannot listen on " + address +
          ": the address is in use: stop the process that listens there (another musterd?) or choose another port");
}

TEST(Listening, APortIsFreeAgainAfterShutdown) {
  FakeController controller;
  const auto first = rpc::serve(controller, "127.0.0.1:0");
  first->shutdown();
  const auto second = rpc::serve(controller, "127.0.0.1:" + std::to_string(first->port()));
  EXPECT_EQ(second->port(), first->port());
}

TEST(Listening, RefusesWhatIsNoAddressOfThisMachine) {
  FakeController controller;
  EXPECT_NE(error_of_serving(controller, "192.0.2.1:7000").find("no such address on this machine"), std::string::npos);
  EXPECT_NE(error_of_serving(controller, "nonsense").find("want host:port"), std::string::npos);
  EXPECT_NE(error_of_serving(controller, "127.0.0.1:http").find("want host:port"), std::string::npos);
}

TEST(Listening, ItsSocketIsNotShared) {
  FakeController controller;
  const auto server = rpc::serve(controller, "127.0.0.1:0");
  // Another process sets SO_REUSEPORT. Its bind() fails only if the server's socket did not set it.
  const int fd = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const int yes = 1;
  ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_REUSEPORT, &yes, sizeof yes), 0);
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_port = htons(static_cast<std::uint16_t>(server->port()));
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  EXPECT_NE(::bind(fd, reinterpret_cast<const sockaddr*>(&to), sizeof to), 0);
  ::close(fd);
}

TEST(Connections, AreThoseOfWhoShowedAValidTokenOnThem) {
  FakeController controller;
  controller.put_running(7);
  const auto connections =
      std::make_shared<net::Connections>(net::Shares{.strangers = 4, .waiting = 4, .people = 4, .ranks = 4});
  const auto server = rpc::serve(controller, "127.0.0.1:0", connections);
  const auto channel = connect(server->port());
  const auto jobs = muster::v1::JobService::NewStub(channel);
  muster::v1::Job job;
  muster::v1::GetRequest seven;
  seven.set_job_id(7);
  Call stranger(""), wrong("nonsense"), right;
  EXPECT_EQ(jobs->Get(&stranger, seven, &job).error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(jobs->Get(&wrong, seven, &job).error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(connections->open().people, 0U);
  EXPECT_TRUE(jobs->Get(&right, seven, &job).ok()) << "on the same channel";
  EXPECT_EQ(connections->open().people, 1U);

  const auto of_rank = connect(server->port());
  const auto ranks = muster::v1::RankService::NewStub(of_rank);
  muster::v1::HeartbeatRequest beat;
  muster::v1::HeartbeatResponse answer;
  Call foreign("nonsense"), own(FakeController::kRankToken);
  EXPECT_EQ(ranks->Heartbeat(&foreign, beat, &answer).error_code(), StatusCode::UNAUTHENTICATED);
  EXPECT_EQ(connections->open().ranks, 0U);
  ranks->Heartbeat(&own, beat, &answer);  // the key is wrong, but the token is right
  EXPECT_EQ(connections->open().ranks, 1U);
}

TEST(Connections, OfARankServeNoCallsOfPeopleAndTheOtherWayRound) {
  FakeController controller;
  controller.put_running(7);
  const auto server = rpc::serve(controller, "127.0.0.1:0");
  const auto channel = connect(server->port());
  muster::v1::HeartbeatRequest beat;
  muster::v1::HeartbeatResponse answer;
  beat.mutable_key()->set_job_id(7);
  beat.mutable_key()->set_attempt(1);
  Call own(FakeController::kRankToken), person;
  ASSERT_TRUE(muster::v1::RankService::NewStub(channel)->Heartbeat(&own, beat, &answer).ok());
  muster::v1::GetRequest seven;
  seven.set_job_id(7);
  muster::v1::Job job;
  EXPECT_EQ(muster::v1::JobService::NewStub(channel)->Get(&person, seven, &job).error_code(),
            StatusCode::UNIMPLEMENTED);
}

TEST_F(Rpc, TellsTheVersionOfTheWireAndTakesEveryNumberButAnOlderOne) {
  for (const auto* version : {"", "1", "2", "no number"}) {
    Call call;
    if (*version != '\0') call.AddMetadata("muster-wire", version);
    muster::v1::StatusResponse response;
    EXPECT_TRUE(admin_->Status(&call, {}, &response).ok()) << version;
    const auto& told = call.GetServerInitialMetadata();
    ASSERT_EQ(told.count("muster-wire"), 1U);
    EXPECT_EQ(told.find("muster-wire")->second, "1");
  }
  Call old;
  old.AddMetadata("muster-wire", "0");
  muster::v1::StatusResponse response;
  const auto refused = admin_->Status(&old, {}, &response);
  EXPECT_EQ(refused.error_code(), StatusCode::FAILED_PRECONDITION);
  EXPECT_EQ(refused.error_message(),
            "this muster is too old for musterd: it speaks version 0 of the wire, and musterd understands 1 and newer; "
            "install the muster of musterd's version");
}

TEST_F(Rpc, PeopleNeedTheToken) {
  muster::v1::StatusResponse response;
  Call without("");
  EXPECT_EQ(admin_->Status(&without, {}, &response).error_code(), StatusCode::UNAUTHENTICATED);
  Call wrong(FakeController::kRankToken);
  EXPECT_EQ(admin_->Status(&wrong, {}, &response).error_code(), StatusCode::UNAUTHENTICATED);
  Call right;
  EXPECT_TRUE(admin_->Status(&right, {}, &response).ok());
  EXPECT_EQ(response.version(), "test");

  Call stream_without("");
  muster::v1::Job job;
  auto watch = jobs_->Watch(&stream_without, job_request(1));
  EXPECT_FALSE(watch->Read(&job));
  EXPECT_EQ(watch->Finish().error_code(), StatusCode::UNAUTHENTICATED);
  Call submit_without("");
  muster::v1::SubmitResponse submitted;
  EXPECT_EQ(jobs_->Submit(&submit_without, {}, &submitted).error_code(), StatusCode::UNAUTHENTICATED);
  Call spec_without(FakeController::kRankToken);
  muster::v1::JobSpec spec;
  EXPECT_EQ(jobs_->GetSpec(&spec_without, job_request(1), &spec).error_code(), StatusCode::UNAUTHENTICATED)
      << "it holds secrets";
}

TEST_F(Rpc, HoldReleaseLimitAndWhyReachTheControllerWithTheirUser) {
  controller_.put_running(7);
  muster::v1::HoldRequest hold;
  hold.set_job_id(7);
  hold.set_user("ben");
  muster::v1::SetTimeLimitRequest limit;
  limit.set_job_id(7);
  limit.set_user("carl");
  limit.set_time_limit_ms(60'000);
  muster::v1::Job job;
  Call first, second, third, fourth;
  ASSERT_TRUE(jobs_->Hold(&first, hold, &job).ok());
  EXPECT_EQ(job.id(), 7);
  ASSERT_TRUE(jobs_->Release(&second, hold, &job).ok());
  ASSERT_TRUE(jobs_->SetTimeLimit(&third, limit, &job).ok());
  EXPECT_EQ(controller_.asked,
            (std::vector<std::string>{"hold 7 by ben", "release 7 by ben", "limit 7 to 60000 by carl"}));
  muster::v1::WhyResponse why;
  ASSERT_TRUE(jobs_->Why(&fourth, job_request(7), &why).ok());
  EXPECT_EQ(why.reason(), "because");
  Call nobody;
  EXPECT_EQ(jobs_->Why(&nobody, job_request(8), &why).error_code(), StatusCode::NOT_FOUND);
}

TEST_F(Rpc, ASweepIsAnsweredWithItsNameAndJobs) {
  muster::v1::SubmitSweepRequest request;
  request.add_specs();
  request.add_specs();
  muster::v1::SubmitSweepResponse response;
  Call call;
  ASSERT_TRUE(jobs_->SubmitSweep(&call, request, &response).ok());
  EXPECT_EQ(response.sweep(), "s41");
  EXPECT_EQ(response.job_ids_size(), 2);
  controller_.store_broken = true;
  Call broken;
  EXPECT_EQ(jobs_->SubmitSweep(&broken, request, &response).error_code(), StatusCode::UNAVAILABLE);
}

TEST_F(Rpc, WhatChangesJobsNeedsThePeoplesTokenAndAUserNameOfBoundedLength) {
  controller_.put_running(7);
  const std::string long_name(257, 'u');
  const auto each = [&](const std::string& token, const std::string& user) {
    std::vector<StatusCode> codes;
    muster::v1::HoldRequest hold;
    hold.set_job_id(7);
    hold.set_user(user);
    muster::v1::SetTimeLimitRequest limit;
    limit.set_job_id(7);
    limit.set_user(user);
    muster::v1::SubmitSweepRequest sweep;
    sweep.set_user(user);
    muster::v1::SubmitSweepResponse swept;
    muster::v1::ChangeSweepRequest change;
    change.set_sweep("s41");
    change.set_change(muster::v1::SWEEP_CHANGE_CANCEL);
    change.set_user(user);
    muster::v1::ChangeSweepResponse changed;
    muster::v1::Job job;
    Call first(token), second(token), third(token), fourth(token), fifth(token);
    codes.push_back(jobs_->Hold(&first, hold, &job).error_code());
    codes.push_back(jobs_->Release(&second, hold, &job).error_code());
    codes.push_back(jobs_->SetTimeLimit(&third, limit, &job).error_code());
    codes.push_back(jobs_->SubmitSweep(&fourth, sweep, &swept).error_code());
    codes.push_back(jobs_->ChangeSweep(&fifth, change, &changed).error_code());
    return codes;
  };
  const auto all = [](StatusCode code) { return std::vector<StatusCode>(5, code); };
  EXPECT_EQ(each("", "ben"), all(StatusCode::UNAUTHENTICATED));
  EXPECT_EQ(each(FakeController::kRankToken, "ben"), all(StatusCode::UNAUTHENTICATED));
  EXPECT_EQ(each(FakeController::kPeopleToken, long_name), all(StatusCode::INVALID_ARGUMENT));
  EXPECT_TRUE(controller_.asked.empty());
  EXPECT_EQ(each(FakeController::kPeopleToken, "ben"), all(StatusCode::OK));
  EXPECT_EQ(controller_.asked.back(), "SWEEP_CHANGE_CANCEL s41");
  muster::v1::WhyResponse why;
  Call stranger("");
  EXPECT_EQ(jobs_->Why(&stranger, job_request(7), &why).error_code(), StatusCode::UNAUTHENTICATED);
  // A script shows what admins run on nodes.
  muster::v1::PlanScriptRequest plan;
  muster::v1::PlanScriptResponse script;
  Call planner(""), checker("");
  EXPECT_EQ(jobs_->PlanScript(&planner, plan, &script).error_code(), StatusCode::UNAUTHENTICATED);
  muster::v1::CheckScriptResponse check;
  EXPECT_EQ(jobs_->CheckScript(&checker, plan, &check).error_code(), StatusCode::UNAUTHENTICATED);
}

TEST_F(Rpc, EveryKindOfRefusalHasItsOwnCode) {
  const std::pair<Refusal::Kind, StatusCode> table[] = {
      {Refusal::Kind::kInvalid, StatusCode::INVALID_ARGUMENT},
      {Refusal::Kind::kNotFound, StatusCode::NOT_FOUND},
      {Refusal::Kind::kWrongState, StatusCode::FAILED_PRECONDITION},
      {Refusal::Kind::kLimit, StatusCode::RESOURCE_EXHAUSTED},
      {Refusal::Kind::kUnavailable, StatusCode::UNAVAILABLE},
      {Refusal::Kind::kUnchanged, StatusCode::ABORTED},
      {Refusal::Kind::kUnauthenticated, StatusCode::UNAUTHENTICATED},
  };
  for (const auto& [kind, code] : table) {
    controller_.set_people_refusal(Refusal{kind, "because"});
    Call call;
    muster::v1::Job job;
    const auto status = jobs_->Get(&call, job_request(1), &job);
    EXPECT_EQ(status.error_code(), code);
    EXPECT_EQ(status.error_message(), "because");
  }
}

TEST_F(Rpc, ARefusalTooLongForATrailerIsCutAndNotLost) {
  std::string text(100'000, 'x');
  for (std::size_t i = 1; i + 1 < text.size(); i += 2) text.replace(i, 2, "ä");
  controller_.set_people_refusal(Refusal{Refusal::Kind::kInvalid, text});
  Call call;
  muster::v1::Job job;
  const auto status = jobs_->Get(&call, job_request(1), &job);
  EXPECT_EQ(status.error_code(), StatusCode::INVALID_ARGUMENT);
  EXPECT_TRUE(status.error_message().ends_with("ä ..."));
}

TEST_F(Rpc, AStoreThatFailsIsUnavailableWithItsReason) {
  controller_.store_broken = true;
  Call call;
  muster::v1::SubmitResponse response;
  const auto status = jobs_->Submit(&call, {}, &response);
  EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "the disk is full: free some space");
}

TEST_F(Rpc, RequestsHaveLimits) {
  muster::v1::SubmitRequest request;
  muster::v1::SubmitResponse response;
  request.set_request_id(std::string(65, 'r'));
  Call long_id;
  EXPECT_EQ(jobs_->Submit(&long_id, request, &response).error_code(), StatusCode::INVALID_ARGUMENT);
  request.set_request_id(std::string(64, 'r'));
  Call fitting;
  EXPECT_TRUE(jobs_->Submit(&fitting, request, &response).ok());

  muster::v1::SubmitSweepRequest sweep;
  muster::v1::SubmitSweepResponse swept;
  sweep.set_request_id(std::string(65, 'r'));
  Call long_sweep;
  EXPECT_EQ(jobs_->SubmitSweep(&long_sweep, sweep, &swept).error_code(), StatusCode::INVALID_ARGUMENT);

  (*request.mutable_spec()->mutable_env())["BIG"] = std::string(rpc::kMaxRequestBytes + 1, 'x');
  Call large;
  EXPECT_EQ(jobs_->Submit(&large, request, &response).error_code(), StatusCode::RESOURCE_EXHAUSTED);

  muster::v1::ListRequest list;
  list.set_limit(1'000'000'000);
  muster::v1::ListResponse listed;
  Call many;
  ASSERT_TRUE(jobs_->List(&many, list, &listed).ok());
  EXPECT_EQ(listed.total(), 1000) << "the controller is asked for at most a thousand";
}

}  // namespace
