#include <filesystem>
#include <map>
#include <thread>

#include "controller/rpc/followers.h"
#include "tests/controller/rpc/harness.h"

namespace {

using namespace rpc::testing;  // NOLINT
using grpc::StatusCode;

TEST_F(Rpc, WatchShowsEachChangeAndEndsWithTheJob) {
  controller_.put_running(1);
  Call call;
  auto watch = jobs_->Watch(&call, job_request(1));
  muster::v1::Job job;
  ASSERT_TRUE(watch->Read(&job));
  EXPECT_EQ(job.state(), "running");
  controller_.update(1, [](muster::v1::Job& j) { j.set_step(5); });
  ASSERT_TRUE(watch->Read(&job));
  EXPECT_EQ(job.step(), 5);
  controller_.update(1, [](muster::v1::Job& j) { j.set_state("succeeded"); });
  ASSERT_TRUE(watch->Read(&job));
  EXPECT_EQ(job.state(), "succeeded");
  EXPECT_FALSE(watch->Read(&job));
  EXPECT_TRUE(watch->Finish().ok());
}

TEST_F(Rpc, WatchIsQuietWhileOnlyTheAgeOfHeartbeatsChanges) {
  controller_.put_running(1);
  controller_.update(1, [](muster::v1::Job& j) { j.add_ranks()->set_last_heartbeat_ms(1); });
  Call call;
  auto watch = jobs_->Watch(&call, job_request(1));
  muster::v1::Job job;
  ASSERT_TRUE(watch->Read(&job));
  controller_.update(1, [](muster::v1::Job& j) { j.mutable_ranks(0)->set_last_heartbeat_ms(2); });
  std::this_thread::sleep_for(400ms);  // long enough for a wrong answer to arrive
  controller_.update(1, [](muster::v1::Job& j) { j.set_state("failed"); });
  ASSERT_TRUE(watch->Read(&job));
  EXPECT_EQ(job.state(), "failed");
}

TEST_F(Rpc, TraceShowsEachChangeAndEndsWhenItIsOver) {
  muster::v1::TraceView view;
  view.set_state("asked");
  controller_.set_trace(view);
  muster::v1::TraceRequest request;
  request.set_job_id(1);
  request.set_number(5);
  request.set_follow(true);
  Call call;
  auto trace = jobs_->Trace(&call, request);
  ASSERT_TRUE(trace->Read(&view));
  EXPECT_EQ(view.state(), "asked");
  EXPECT_EQ(view.number(), 5U);
  controller_.touch();
  view.set_state("over");
  controller_.set_trace(view);
  ASSERT_TRUE(trace->Read(&view));
  EXPECT_EQ(view.state(), "over") << "once each";
  EXPECT_FALSE(trace->Read(&view));
  EXPECT_TRUE(trace->Finish().ok());
}

TEST_F(Rpc, TraceWithoutFollowAnswersOnce) {
  muster::v1::TraceView view;
  view.set_state("asked");
  controller_.set_trace(view);
  Call call;
  auto trace = jobs_->Trace(&call, {});
  EXPECT_TRUE(trace->Read(&view));
  EXPECT_FALSE(trace->Read(&view));
  EXPECT_TRUE(trace->Finish().ok());
}

TEST_F(Rpc, TraceIsRefusedToStrangersAndWithoutAJob) {
  muster::v1::TraceView view;
  muster::v1::TraceRequest request;
  request.set_job_id(9);
  Call missing;
  EXPECT_EQ(jobs_->Trace(&missing, request)->Finish().error_code(), StatusCode::NOT_FOUND);
  Call stranger("another-token");
  EXPECT_EQ(jobs_->Trace(&stranger, request)->Finish().error_code(), StatusCode::UNAUTHENTICATED);
  Call rank(FakeController::kRankToken);
  EXPECT_EQ(jobs_->Trace(&rank, request)->Finish().error_code(), StatusCode::UNAUTHENTICATED);
  request.set_user(std::string(257, 'a'));
  Call long_name;
  EXPECT_EQ(jobs_->Trace(&long_name, request)->Finish().error_code(), StatusCode::INVALID_ARGUMENT);
}

TEST_F(Rpc, StreamsOfAJobThatIsNotThereAreNotFound) {
  Call watch_call;
  muster::v1::Job job;
  auto watch = jobs_->Watch(&watch_call, job_request(9));
  EXPECT_FALSE(watch->Read(&job));
  EXPECT_EQ(watch->Finish().error_code(), StatusCode::NOT_FOUND);
  Call events_call;
  muster::v1::EventsRequest request;
  request.set_job_id(9);
  muster::v1::Event event;
  auto events = jobs_->Events(&events_call, request);
  EXPECT_FALSE(events->Read(&event));
  EXPECT_EQ(events->Finish().error_code(), StatusCode::NOT_FOUND);
}

TEST_F(Rpc, EventsCrossPagesAndFollowUntilTheJobHasEnded) {
  controller_.put_running(1);
  for (int id = 1; id <= 1200; ++id) controller_.add_event(1, id);
  muster::v1::EventsRequest request;
  request.set_job_id(1);
  request.set_after_id(10);
  request.set_follow(true);
  Call call;
  auto events = jobs_->Events(&call, request);
  muster::v1::Event event;
  for (int id = 11; id <= 1200; ++id) {
    ASSERT_TRUE(events->Read(&event));
    ASSERT_EQ(event.id(), id);
  }
  controller_.add_event(1, 1201);
  ASSERT_TRUE(events->Read(&event));
  EXPECT_EQ(event.id(), 1201);
  controller_.add_event(1, 1202);
  controller_.update(1, [](muster::v1::Job& j) { j.set_state("cancelled"); });
  ASSERT_TRUE(events->Read(&event));
  EXPECT_EQ(event.id(), 1202);
  EXPECT_FALSE(events->Read(&event));
  EXPECT_TRUE(events->Finish().ok());
}

TEST_F(Rpc, EventsOfAllJobsWithoutFollowEndAtOnce) {
  controller_.add_event(1, 1);
  controller_.add_event(2, 2);
  Call call;
  auto events = jobs_->Events(&call, {});
  muster::v1::Event event;
  EXPECT_TRUE(events->Read(&event));
  EXPECT_TRUE(events->Read(&event));
  EXPECT_FALSE(events->Read(&event));
  EXPECT_TRUE(events->Finish().ok());
}

TEST_F(Rpc, MetricsRewindAtAResumeAndFollow) {
  controller_.put_running(1);
  for (int step = 1; step <= 1500; ++step) controller_.add_metric(1, step);
  controller_.add_metric(2, 1001);
  muster::v1::MetricsRequest request;
  request.set_job_id(1);
  request.set_follow(true);
  Call call;
  auto metrics = jobs_->Metrics(&call, request);
  muster::v1::Metric metric;
  for (int step = 1; step <= 1500; ++step) {
    ASSERT_TRUE(metrics->Read(&metric));
    ASSERT_EQ(metric.step(), step);
  }
  ASSERT_TRUE(metrics->Read(&metric));
  EXPECT_EQ(metric.attempt(), 2u);
  EXPECT_EQ(metric.step(), 1001);
  controller_.add_metric(2, 1002);
  controller_.update(1, [](muster::v1::Job& j) { j.set_state("succeeded"); });
  ASSERT_TRUE(metrics->Read(&metric));
  EXPECT_EQ(metric.step(), 1002);
  EXPECT_FALSE(metrics->Read(&metric));
  EXPECT_TRUE(metrics->Finish().ok());
}

// A sweep of two pages, of which the two oldest jobs have reported the series. Each has two pages of steps.
TEST_F(Rpc, MetricsOfASweepAreThoseOfItsJobsThatReportedTheSeries) {
  for (int id = 1; id <= 1100; ++id) {
    controller_.put_running(id);
    controller_.update(id, [&](muster::v1::Job& job) {
      job.mutable_sweep()->set_sweep("s1");
      if (id <= 2) job.add_series()->set_name("loss");
    });
  }
  for (int step = 1; step <= 1500; ++step) controller_.add_metric(1, step, {{"loss", step}, {"other", 1}});
  controller_.add_metric(1, 1501);
  muster::v1::SweepMetricsRequest request;
  request.set_sweep("s1");
  request.set_series("loss");
  Call call;
  auto metrics = jobs_->SweepMetrics(&call, request);
  std::map<std::int64_t, int> steps;
  for (muster::v1::JobMetrics some; metrics->Read(&some);) {
    for (const auto& metric : some.metrics()) {
      ASSERT_EQ(metric.step(), ++steps[some.job_id()]);
      ASSERT_EQ(metric.series_size(), 1);
      ASSERT_EQ(metric.series().at("loss"), metric.step());
    }
  }
  EXPECT_TRUE(metrics->Finish().ok());
  EXPECT_EQ(steps, (std::map<std::int64_t, int>{{1, 1500}, {2, 1500}}));
}

// Results rank jobs by their best value, which may have aged out as a step. It is a point of the curve.
TEST_F(Rpc, MetricsOfASweepGoOnFromThePointsOfStepsThatHaveAgedOut) {
  controller_.put_running(1);
  controller_.update(1, [](muster::v1::Job& job) {
    job.mutable_sweep()->set_sweep("s1");
    job.add_series()->set_name("loss");
  });
  for (int step = 1; step <= 100; ++step) controller_.add_metric(1, step, {{"loss", step == 40 ? 0.5 : 9}});
  store::Curve curve, other;
  curve.name = "loss";
  other.name = "other";
  curve.points = {{1, {32, 0, 9}}, {1, {40, 0, 0.5}}, {1, {63, 0, 9}}, {1, {99, 0, 9}}};
  store::Thinned points;
  points.attempts = {{1, 1, 100, 64}};
  points.series = {other, curve};
  controller_.let_age(64, points);
  muster::v1::SweepMetricsRequest request;
  request.set_sweep("s1");
  request.set_series("loss");
  Call call;
  auto metrics = jobs_->SweepMetrics(&call, request);
  std::vector<std::int64_t> steps;
  for (muster::v1::JobMetrics some; metrics->Read(&some);) {
    for (const auto& metric : some.metrics()) steps.push_back(metric.step());
  }
  EXPECT_TRUE(metrics->Finish().ok());
  ASSERT_EQ(steps.size(), 3U + 37U);
  EXPECT_EQ(std::vector(steps.begin(), steps.begin() + 4), (std::vector<std::int64_t>{32, 40, 63, 64}));
}

TEST_F(Rpc, MetricsOfAnAttemptThatIsNotThereAreNotFound) {
  controller_.put_running(1);
  for (const bool follow : {false, true}) {
    muster::v1::MetricsRequest request;
    request.set_job_id(1);
    request.set_attempt(9);
    request.set_follow(follow);
    Call call;
    auto metrics = jobs_->Metrics(&call, request);
    muster::v1::Metric metric;
    EXPECT_FALSE(metrics->Read(&metric));
    const auto status = metrics->Finish();
    EXPECT_EQ(status.error_code(), grpc::StatusCode::NOT_FOUND);
    EXPECT_EQ(status.error_message(), "job 1 has no attempt 9; it has 1, see muster show");
  }
}

TEST_F(Rpc, AStreamEndsSoonAfterItsClientHasLeft) {
  controller_.put_running(1);
  Call call;
  auto watch = jobs_->Watch(&call, job_request(1));
  muster::v1::Job job;
  ASSERT_TRUE(watch->Read(&job));
  EXPECT_EQ(server_->open_streams(), 1u);
  const auto begin = Clock::now();
  call.TryCancel();
  EXPECT_TRUE(streams_become(0));
  EXPECT_LT(Clock::now() - begin, 2s);
}

TEST_F(Rpc, ShutdownEndsStreamsInsteadOfWaitingForThem) {
  controller_.put_running(1);
  Call call;
  auto watch = jobs_->Watch(&call, job_request(1));
  muster::v1::Job job;
  ASSERT_TRUE(watch->Read(&job));
  const auto begin = Clock::now();
  server_->shutdown();
  EXPECT_LT(Clock::now() - begin, 3s);
  EXPECT_FALSE(watch->Read(&job));
  const auto status = watch->Finish();
  EXPECT_EQ(status.error_code(), StatusCode::UNAVAILABLE);
  EXPECT_EQ(status.error_message(), "musterd is shutting down; follow again when it is back");
}

/// A call that names its user.
struct UsersCall : Call {
  explicit UsersCall(const std::string& user) { AddMetadata("muster-user", user); }
};

TEST_F(Rpc, OneUserHasSixteenFollowersAndLocksNobodyElseOut) {
  controller_.put_running(1);
  controller_.add_event(1, 1);
  std::vector<std::unique_ptr<Call>> calls;
  std::vector<std::unique_ptr<grpc::ClientReader<muster::v1::Job>>> watches;
  muster::v1::Job job;
  for (std::size_t i = 0; i < rpc::Followers::kMostOfUser; ++i) {
    calls.push_back(std::make_unique<UsersCall>("ben"));
    watches.push_back(jobs_->Watch(calls.back().get(), job_request(1)));
    ASSERT_TRUE(watches.back()->Read(&job));
  }
  UsersCall one_more("ben");
  auto refused = jobs_->Watch(&one_more, job_request(1));
  EXPECT_FALSE(refused->Read(&job));
  const auto status = refused->Finish();
  EXPECT_EQ(status.error_code(), StatusCode::RESOURCE_EXHAUSTED);
  EXPECT_TRUE(status.error_message().starts_with("max_streams_of_user: ben has 16 followers open"))
      << status.error_message();

  UsersCall reads("ben");
  muster::v1::EventsRequest request;
  request.set_job_id(1);
  muster::v1::Event event;
  EXPECT_TRUE(jobs_->Events(&reads, request)->Read(&event)) << "what does not follow ends by itself";
  muster::v1::StacksView view;
  view.mutable_shown()->set_number(1);
  controller_.set_stacks(view);
  UsersCall asks("ben");
  muster::v1::StacksRequest stacks;
  stacks.set_job_id(1);
  stacks.set_ask(true);
  auto asked = jobs_->Stacks(&asks, stacks);
  ASSERT_TRUE(streams_become(rpc::Followers::kMostOfUser + 1)) << "a question for stacks ends by itself, too";
  asks.TryCancel();
  UsersCall other("eva");
  EXPECT_TRUE(jobs_->Watch(&other, job_request(1))->Read(&job));
  other.TryCancel();
  calls.front()->TryCancel();
  const auto until = Clock::now() + 10s;
  bool in = false;
  while (!in && Clock::now() < until) {
    UsersCall again("ben");
    in = jobs_->Watch(&again, job_request(1))->Read(&job);
    again.TryCancel();
  }
  EXPECT_TRUE(in) << "a place comes free";
  for (auto& call : calls) call->TryCancel();
  EXPECT_TRUE(streams_become(0));
}

// Goal: followers cost no threads. Method: 1,024 of them from 64 users, on a few connections.
TEST_F(Rpc, AThousandFollowersHearOfAChangeAndHoldNoThread) {
  controller_.put_running(1);
  const auto threads = [] {
    return std::distance(std::filesystem::directory_iterator("/proc/self/task"), std::filesystem::directory_iterator());
  };
  constexpr std::size_t kFollowers = 1024, kConnections = 16;
  std::vector<std::unique_ptr<muster::v1::JobService::Stub>> stubs;
  for (std::size_t i = 0; i < kConnections; ++i) {
    stubs.push_back(muster::v1::JobService::NewStub(connect(server_->port())));
  }
  muster::v1::Job job;
  std::vector<std::unique_ptr<Call>> calls;
  std::vector<std::unique_ptr<grpc::ClientReader<muster::v1::Job>>> watches;
  std::ptrdiff_t before = 0;
  for (std::size_t i = 0; i < kFollowers; ++i) {
    calls.push_back(std::make_unique<UsersCall>("user" + std::to_string(i / rpc::Followers::kMostOfUser)));
    watches.push_back(stubs[i % kConnections]->Watch(calls.back().get(), job_request(1)));
    ASSERT_TRUE(watches.back()->Read(&job)) << i;
    if (i == 64) before = threads();
  }
  EXPECT_LE(threads(), before + 16);
  EXPECT_EQ(server_->open_streams(), kFollowers);
  Call unary;
  EXPECT_TRUE(jobs_->Get(&unary, job_request(1), &job).ok());
  controller_.update(1, [](muster::v1::Job& changed) { changed.set_step(5); });
  for (auto& watch : watches) {
    ASSERT_TRUE(watch->Read(&job));
    EXPECT_EQ(job.step(), 5);
  }
  for (auto& call : calls) call->TryCancel();
  EXPECT_TRUE(streams_become(0));
}

}  // namespace
