// Goal: ranks are answered truthfully: who may speak, what they are to do, what of their news is durable.
#include <gmock/gmock.h>
#include <cmath>
#include <fstream>
#include <limits>

#include "agent/watch/agent_files.h"
#include "base/durable_file.h"
#include "controller/jobs/specs.h"
#include "tests/controller/service/bench.h"
#include "tests/manual_clock.h"
#include "tests/temporary_folder.h"

namespace service::testing {
namespace {

using ::testing::HasSubstr;

class Ranks : public ::testing::TestWithParam<StoreKind> {
 protected:
  Bench bench{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Stores, Ranks, ::testing::Values(StoreKind::kMemory, StoreKind::kSqlite), store_name);

muster::v1::RegisterRequest registration(core::AttemptKey key, core::RankNumber rank, std::uint32_t world) {
  muster::v1::RegisterRequest request;
  *request.mutable_key() = Bench::beat(key, rank).key();
  request.set_world_size(world);
  request.set_pid(4242);
  request.set_node("node7");
  return request;
}

TEST_P(Ranks, RegisterWithTheirAttemptsOwnToken) {
  const auto id = bench.submit(recipe_request("a"));
  auto& controller = bench.controller();
  const auto good = controller.register_rank(registration({id, 1}, 1, 2), bench.token({id, 1}));
  ASSERT_TRUE(good.ok());
  EXPECT_EQ(good.value().heartbeat_interval_ms(), 500);
  EXPECT_EQ(bench.job(id).ranks(1).node(), "node7");
  EXPECT_EQ(bench.job(id).ranks(1).pid(), 4242);
  for (const auto& token : {std::string(), std::string("people"), bench.token({id, 2})}) {
    const auto bad = controller.register_rank(registration({id, 1}, 1, 2), token);
    ASSERT_FALSE(bad.ok());
    EXPECT_EQ(bad.refusal().kind, common::Refusal::Kind::kUnauthenticated);
  }
  EXPECT_FALSE(controller.register_rank(registration({id, 1}, 5, 2), bench.token({id, 1})).ok());
  EXPECT_FALSE(controller.register_rank(registration({id, 1}, 1, 3), bench.token({id, 1})).ok());
}

TEST_P(Ranks, OfAnOldAttemptAreFenced) {
  const auto id = bench.submit(recipe_request("a"));
  bench.heartbeats({id, 1}, 2, 5);
  EXPECT_EQ(agent::watch::read_fence(bench.folder() / "jobs" / std::to_string(id) / "checkpoints"),
            (agent::protocol::Fence{id, 1}));
  bench.executor().end_all({id, 1}, {0, 9});
  bench.pass(2s);
  ASSERT_TRUE(bench.machine->has({id, 2}));
  EXPECT_EQ(agent::watch::read_fence(bench.folder() / "jobs" / std::to_string(id) / "checkpoints"),
            (agent::protocol::Fence{id, 2}));
  auto old = Bench::beat({id, 1}, 0, 6);
  old.add_checkpoints()->set_step(6);
  old.add_metrics()->set_step(6);
  const auto answer = bench.send(old).value();
  EXPECT_EQ(answer.directive(), muster::v1::DIRECTIVE_STOP);
  EXPECT_EQ(answer.metrics_accepted(), 1U) << "late, but true";
  EXPECT_EQ(answer.checkpoints_accepted(), 1U) << "so that it is not sent for ever";
  EXPECT_EQ(bench.job(id).last_checkpoint_step(), 0);
  EXPECT_EQ(bench.heartbeat({id, 2}, 0, 1), muster::v1::DIRECTIVE_CONTINUE);
  EXPECT_EQ(bench.heartbeat({id, 9}, 0, 1), muster::v1::DIRECTIVE_STOP) << "an attempt that never was";
}

// Goal: an attempt is judged by the fence that was raised for its own job, and by no other.
// Method: a job that has had two attempts, and a command that names the first job's checkpoint folder as its own.
TEST_P(Ranks, OfACommandLookAtNoFenceInAFolderOfItsOwn) {
  const auto first = bench.submit(recipe_request("a"));
  const auto folder = bench.folder() / "jobs" / std::to_string(first) / "checkpoints";
  bench.heartbeats({first, 1}, 2, 5);
  bench.executor().end_all({first, 1}, {0, 9});
  bench.pass(2s);
  auto request = command_request("b");
  request.mutable_spec()->mutable_checkpoint()->set_folder(folder.string());
  const auto second = bench.submit(request);
  const auto plain = bench.submit(command_request("c"));
  EXPECT_EQ(bench.machine->get({first, 2}).request.fence_folder, folder);
  EXPECT_EQ(bench.machine->get({second, 1}).request.fence_folder, "");
  EXPECT_EQ(bench.machine->get({plain, 1}).request.fence_folder,
            bench.folder() / "jobs" / std::to_string(plain) / "checkpoints");
  EXPECT_EQ(agent::watch::read_fence(folder), (agent::protocol::Fence{first, 2}));
}

// Goal: two jobs with one checkpoint folder never write there at once, and the later one goes on from the earlier
// one's. Method: a job with two attempts; the same job file again, while the first job runs and when it has ended.
TEST_P(Ranks, OfASecondJobWithTheSameCheckpointFolderWaitForTheFirstJobsEnd) {
  test::TemporaryFolder shared;
  auto request = recipe_request("a");
  request.mutable_spec()->mutable_checkpoint()->set_folder(shared.path().string());
  const auto first = bench.submit(request);
  bench.heartbeats({first, 1}, 2, 5);
  bench.executor().end_all({first, 1}, {0, 9});
  bench.pass(2s);
  ASSERT_TRUE(bench.machine->has({first, 2}));
  request.set_request_id("b");
  const auto second = bench.submit(request);
  bench.pass(60s);
  EXPECT_FALSE(bench.machine->has({second, 1}));
  const auto why = bench.controller().why(second).value();
  EXPECT_THAT(why.reason(), HasSubstr("its checkpoint folder " + shared.path().string() + " belongs to job " +
                                      std::to_string(first) + ", which has not ended"));
  EXPECT_THAT(why.action(), HasSubstr("muster cancel " + std::to_string(first)));
  EXPECT_EQ(agent::watch::read_fence(shared.path()), (agent::protocol::Fence{first, 2}));
  bench.executor().end_all({first, 2}, {0, 0});
  bench.pass(60s);
  EXPECT_TRUE(bench.machine->has({second, 1}));
  EXPECT_EQ(agent::watch::read_fence(shared.path()), (agent::protocol::Fence{second, 1}));
}

// Who follows the ends of processes learns the order of causes from it.
TEST_P(Ranks, ThatLeaveWithAnErrorAreNamedToTheExecutorBeforeTheyAreGone) {
  const auto id = bench.submit(recipe_request("a"));
  const auto leave = [&](core::AttemptKey key, core::RankNumber rank, int code) {
    auto request = Bench::beat(key, rank, 5);
    request.set_leaving(true);
    request.set_exit_code(code);
    bench.send(request);
  };
  bench.heartbeats({id, 1}, 2, 5);
  leave({id, 1}, 1, 1);
  leave({id, 1}, 0, 0);
  leave({id, 2}, 0, 1);
  using Key = core::AttemptKey;
  EXPECT_EQ(bench.machine->failing, (std::vector<std::pair<Key, core::RankNumber>>{{Key{id, 1}, 1}}))
      << "neither one that is done, nor one of another attempt";
}

TEST_P(Ranks, AreToldToGoOnWhileTheirLaunchIsNotRecordedYet) {
  // The launch has happened, its record has not: dead in between.
  bench.point.at = 5;
  core::JobId id = 1;
  try {
    id = bench.controller().submit(recipe_request("a")).value().job_id();
    bench.tick();
  } catch (const Crash&) {
  }
  bench.point.at = -1;
  bench.restart();
  ASSERT_TRUE(bench.machine->has({id, 1}));
  ASSERT_EQ(bench.job(id).attempts_size(), 0);
  auto beat = Bench::beat({id, 1}, 0, 1);
  beat.add_metrics()->set_step(1);
  const auto answer = bench.send(beat).value();
  EXPECT_EQ(answer.directive(), muster::v1::DIRECTIVE_CONTINUE);
  EXPECT_EQ(answer.metrics_accepted(), 1U);
  EXPECT_EQ(bench.heartbeat({id, 2}, 0, 1), muster::v1::DIRECTIVE_STOP) << "only the one that is expected";
  bench.tick();
  EXPECT_EQ(bench.job(id).attempts_size(), 1);
  EXPECT_EQ(bench.machine->starts[(core::AttemptKey{id, 1})], 1);
  EXPECT_EQ(bench.heartbeat({id, 1}, 0, 1), muster::v1::DIRECTIVE_CONTINUE);
  EXPECT_EQ(bench.job(id).ranks(0).state(), "running");
}

TEST_P(Ranks, MetricsAreDurableWhenAcceptedAndNeverDoubled) {
  const auto id = bench.submit(recipe_request("a"));
  for (core::RankNumber r : {0U, 1U}) {
    auto beat = Bench::beat({id, 1}, r, 2);
    for (int step : {1, 2, 2}) {
      auto& m = *beat.add_metrics();
      m.set_step(step);
      add_value(m, "loss", 3.5);
      add_value(m, "tokens_per_s", 100);
      m.set_bytes_communicated(10);
      m.set_step_ms(r == 0 ? 5 : 7);
    }
    EXPECT_EQ(bench.send(beat).value().metrics_accepted(), 3U);
    EXPECT_EQ(bench.send(beat).value().metrics_accepted(), 3U);
  }
  bench.restart();
  const auto rows = bench.controller().metrics(id, 0, 0, 0, 100);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_EQ(rows[1].bytes_communicated(), 20);
  EXPECT_EQ(rows[1].step_ms(), 7);
  EXPECT_EQ(bench.job(id).step(), 2) << "found again after a restart";
  EXPECT_EQ(bench.job(id).loss(), 3.5);
}

TEST_P(Ranks, ALossThatIsNoNumberIsKeptAsSuch) {
  const auto id = bench.submit(recipe_request("a", 1));
  auto beat = Bench::beat({id, 1}, 0, 2);
  auto& first = *beat.add_metrics();
  first.set_step(1);
  add_value(first, "loss", std::numeric_limits<double>::quiet_NaN());
  auto& second = *beat.add_metrics();
  second.set_step(2);
  add_value(second, "loss", std::numeric_limits<double>::infinity());
  EXPECT_EQ(bench.send(beat).value().metrics_accepted(), 2U);
  const auto rows = bench.controller().metrics(id, 0, 0, 0, 100);
  ASSERT_EQ(rows.size(), 2U);
  EXPECT_TRUE(std::isnan(rows[0].loss()));
  EXPECT_TRUE(std::isinf(rows[1].loss()));
}

TEST_P(Ranks, CheckpointsAreToldOncePerStepByRankZero) {
  const auto id = bench.submit(recipe_request("a"));
  for (int round = 0; round < 2; ++round) {
    for (core::RankNumber r : {1U, 0U}) {
      auto beat = Bench::beat({id, 1}, r, 30);
      beat.set_resumed_from_step(0);
      for (int step : {10, 20}) beat.add_checkpoints()->set_step(step);
      EXPECT_EQ(bench.send(beat).value().checkpoints_accepted(), 2U);
    }
  }
  EXPECT_EQ(bench.count_events(id, "checkpoint_saved"), 2);
  EXPECT_EQ(bench.count_events(id, "attempt_resumed"), 1);
  EXPECT_EQ(bench.job(id).last_checkpoint_step(), 20);
}

// Goal: after an outage the history says when each checkpoint was saved, not only when the controller learnt of it.
TEST_P(Ranks, CheckpointsSayWhenTheyWereSaved) {
  const auto id = bench.submit(recipe_request("a", 1));
  const auto now = bench.clock.wall().time_since_epoch().count();
  auto beat = Bench::beat({id, 1}, 0, 30);
  const std::int64_t at[] = {now - 90'000, now - 45'000, now - 500, 0};
  for (std::int64_t step = 10; step <= 40; step += 10) {
    auto& saved = *beat.add_checkpoints();
    saved.set_step(step);
    saved.set_at_ms(at[step / 10 - 1]);
  }
  EXPECT_EQ(bench.send(beat).value().checkpoints_accepted(), 4U);
  std::vector<std::string> texts, payloads;
  for (const auto& event : bench.controller().events(id, 0, 100)) {
    if (event.type() != "checkpoint_saved") continue;
    texts.push_back(event.text());
    payloads.push_back(event.payload());
  }
  // The clock of these tests stands at 2023-11-14 22:30 UTC, and some seconds.
  EXPECT_THAT(
      texts, ::testing::ElementsAre(
                 ::testing::MatchesRegex("checkpoint saved at step 10, at 2023-11-14 22:2.:.. UTC by the rank's clock"),
                 ::testing::StartsWith("checkpoint saved at step 20, at 2023-11-14 22:2"),
                 "checkpoint saved at step 30", "checkpoint saved at step 40"));
  EXPECT_THAT(payloads.at(0), ::testing::HasSubstr("\"saved_at_ms\":" + std::to_string(now - 90'000)));
}

TEST_P(Ranks, AnAttemptThatRewindsTellsItsOwnCheckpoints) {
  const auto id = bench.submit(recipe_request("a", 1));
  auto beat = Bench::beat({id, 1}, 0, 20);
  beat.add_checkpoints()->set_step(20);
  bench.send(beat);
  bench.executor().end_all({id, 1}, {0, 9});
  bench.pass(2s);
  auto again = Bench::beat({id, 2}, 0, 15);
  again.set_resumed_from_step(10);  // the newest one was torn
  again.add_checkpoints()->set_step(15);
  EXPECT_EQ(bench.send(again).value().checkpoints_accepted(), 1U);
  EXPECT_EQ(bench.count_events(id, "checkpoint_saved"), 2);
  EXPECT_EQ(bench.attempt(id, 2).resumed_from_step(), 10);
  EXPECT_EQ(bench.job(id).step(), 10) << "where it stands until its first step is told";
}

TEST_P(Ranks, MeetWhereRankZeroSays) {
  const auto id = bench.submit(recipe_request("a"));
  muster::v1::RendezvousRequest request;
  *request.mutable_key() = Bench::beat({id, 1}, 1).key();
  const auto token = bench.token({id, 1});
  EXPECT_EQ(bench.controller().rendezvous(request, token).value().endpoint(), "");
  request.set_endpoint("127.0.0.1:4000");
  EXPECT_FALSE(bench.controller().rendezvous(request, token).ok()) << "rank 1 has no say";
  request.mutable_key()->set_rank(0);
  EXPECT_EQ(bench.controller().rendezvous(request, token).value().endpoint(), "127.0.0.1:4000");
  request.mutable_key()->set_rank(1);
  request.clear_endpoint();
  EXPECT_EQ(bench.controller().rendezvous(request, token).value().endpoint(), "127.0.0.1:4000");
  bench.executor().end_all({id, 1}, {0, 9});
  bench.pass(2s);
  const auto over = bench.controller().rendezvous(request, token).value();
  EXPECT_EQ(over.endpoint(), "");
  EXPECT_EQ(over.directive(), muster::v1::DIRECTIVE_STOP);
  request.mutable_key()->set_attempt(2);
  EXPECT_EQ(bench.controller().rendezvous(request, bench.token({id, 2})).value().endpoint(), "")
      << "the next attempt meets elsewhere";
}

TEST_P(Ranks, AreShownWithAgeMemoryAndStep) {
  const auto id = bench.submit(recipe_request("a"));
  EXPECT_FALSE(bench.job(id).ranks(0).has_last_heartbeat_ms());
  auto beat = Bench::beat({id, 1}, 0, 7);
  beat.set_memory_bytes(100);
  beat.set_memory_peak_bytes(200);
  bench.send(beat);
  bench.clock.advance(300ms);
  const auto rank = bench.job(id).ranks(0);
  EXPECT_EQ(rank.last_heartbeat_ms(), 300);
  EXPECT_EQ(rank.section(), "step");
  EXPECT_EQ(rank.step(), 7);
  EXPECT_EQ(rank.memory_bytes(), 100);
  EXPECT_EQ(rank.memory_peak_bytes(), 200);
  EXPECT_EQ(rank.state(), "running");
}

TEST_P(Ranks, AreHeardWithoutTheStoreHoweverManyJobsAreListed) {
  const auto id = bench.submit(recipe_request("a", 1));
  bench.heartbeat({id, 1}, 0);
  for (std::size_t i = 0; i <= jobs::SpecCache::kJobs; ++i) {
    auto request = command_request("other-" + std::to_string(i));
    request.mutable_spec()->set_hold(true);
    const auto other = bench.controller().submit(request);
    ASSERT_TRUE(other.ok());
    ASSERT_TRUE(bench.controller().cancel(other.value().job_id(), "ada").ok());
  }
  muster::v1::ListRequest everything;
  everything.set_limit(1000);
  bench.controller().list(everything);
  everything.set_before_id(100);
  everything.set_limit(98);  // not the first one
  bench.controller().list(everything);
  bench.unreadable[id] = 1;
  EXPECT_TRUE(bench.send(Bench::beat({id, 1}, 0, 1)).ok()) << "its spec is in memory as long as it is open";
  EXPECT_EQ(bench.job(id).ranks(0).step(), 1);
}

TEST_P(Ranks, ARankThatEndsBeforeItsLaunchIsRecordedIsNotForgotten) {
  struct Hasty : FakeExecutor {
    using FakeExecutor::FakeExecutor;
    executors::LaunchAnswer launch(const executors::LaunchRequest& request) override {
      auto answer = FakeExecutor::launch(request);
      end_all(request.key, {0, 0});
      return answer;
    }
  };
  TempFolder folder;
  store::MemoryStore store;
  common::ManualClock clock;
  Hasty executor;
  const auto controller = make_controller(store, executor, clock, {.data_folder = folder.path(), .threads = false});
  controller->start({});
  const auto id = controller->submit(command_request("a", 2)).value().job_id();
  controller->tick();
  EXPECT_EQ(controller->get(id).value().state(), "succeeded");
}

}  // namespace
}  // namespace service::testing
