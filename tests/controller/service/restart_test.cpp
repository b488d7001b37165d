// Goal: kill -9 of the controller between any two steps loses no acknowledged job and starts none twice.
// Method: a controller without threads dies inside a chosen call of its store or executor; another one takes over the
// same store and the same machine.
#include <gmock/gmock.h>
#include <google/protobuf/util/delimited_message_util.h>

#include <fstream>

#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

class Restart : public ::testing::TestWithParam<StoreKind> {
 protected:
  Bench bench{GetParam()};
};
INSTANTIATE_TEST_SUITE_P(Stores, Restart, ::testing::Values(StoreKind::kMemory, StoreKind::kSqlite), store_name);

TEST_P(Restart, RunningRanksGoOnAndTheirMetricsHaveNoGap) {
  const auto id = bench.submit(recipe_request("a"));
  bench.heartbeats({id, 1}, 2, 1);
  const auto metric = [](muster::v1::HeartbeatRequest& beat, int step) {
    auto& m = *beat.add_metrics();
    m.set_step(step);
    add_value(m, "loss", 1.0 / step);
  };
  for (int step = 1; step <= 5; ++step) {
    auto beat = Bench::beat({id, 1}, 0, step);
    metric(beat, step);
    EXPECT_EQ(bench.send(beat).value().metrics_accepted(), 1U);
  }
  bench.crash();
  bench.clock.advance(10s);
  bench.start();
  bench.tick();
  EXPECT_EQ(bench.heartbeat({id, 1}, 1, 20), muster::v1::DIRECTIVE_CONTINUE);
  auto late = Bench::beat({id, 1}, 0, 20);
  for (int step = 4; step <= 20; ++step) metric(late, step);  // 4 and 5 were not known to have arrived
  EXPECT_EQ(bench.send(late).value().metrics_accepted(), 17U);
  const auto steps = bench.controller().metrics(id, 0, 0, 0, 1000);
  ASSERT_EQ(steps.size(), 20U);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(steps[static_cast<std::size_t>(i)].step(), i + 1);
  bench.pass(20s, [&] { bench.heartbeats({id, 1}, 2, 20); });
  EXPECT_EQ(bench.state(id), "running");
  EXPECT_EQ(bench.machine->starts[(core::AttemptKey{id, 1})], 1);
  EXPECT_EQ(bench.count_events(id, "rank_joined"), 2);
  EXPECT_EQ(bench.machine->stop_count({id, 1}), 0U);
}

TEST_P(Restart, ARankThatEndedMeanwhileIsFoundOut) {
  const auto id = bench.submit(recipe_request("a"));
  bench.heartbeats({id, 1}, 2, 1);
  bench.crash();
  bench.start();
  bench.executor().end_silently({id, 1}, 0, {0, 9});
  bench.restart();
  bench.tick();
  EXPECT_EQ(bench.attempt(id, 1).cause(), "failed");
  EXPECT_EQ(bench.attempt(id, 1).state(), "draining");
}

/// Writes the file of unsent reports as a worker does.
void write_unsent(const std::filesystem::path& file, const std::vector<muster::v1::HeartbeatRequest>& reports) {
  std::filesystem::create_directories(file.parent_path());
  std::ofstream out(file, std::ios::binary);
  for (const auto& report : reports) google::protobuf::util::SerializeDelimitedToOstream(report, &out);
}

TEST_P(Restart, WhatARankCouldNotSendBeforeItEndedIsReadWhenItsEndIsLearned) {
  const auto id = bench.submit(recipe_request("a"));
  bench.heartbeats({id, 1}, 2, 1);
  bench.crash();
  auto late = Bench::beat({id, 1}, 0, 7);
  late.set_resumed_from_step(0);
  for (int step = 2; step <= 7; ++step) late.add_metrics()->set_step(step);
  late.add_checkpoints()->set_step(6);
  auto last = Bench::beat({id, 1}, 0, 8);
  last.add_metrics()->set_step(8);
  last.set_leaving(true);
  last.set_exit_code(1);
  last.set_leaving_reason("the disk is full");
  auto strangers = Bench::beat({id, 2}, 0, 9);
  strangers.add_metrics()->set_step(9);
  const auto folder = bench.folder() / "jobs" / std::to_string(id) / "attempt-1" / "unsent";
  write_unsent(folder / "rank-0", {late, last});
  write_unsent(folder / "rank-1", {strangers});
  bench.start();
  bench.executor().end_silently({id, 1}, 0, {1, 0});
  bench.executor().end_silently({id, 1}, 1, {1, 0});
  bench.restart();
  bench.tick();
  EXPECT_EQ(bench.attempt(id, 1).cause(), "failed");
  EXPECT_THAT(bench.attempt(id, 1).reason(), ::testing::HasSubstr("the disk is full"));
  EXPECT_EQ(bench.job(id).last_checkpoint_step(), 6);
  EXPECT_EQ(bench.controller().metrics(id, 0, 0, 0, 1000).size(), 7U);
  EXPECT_FALSE(std::filesystem::exists(folder / "rank-0")) << "read once";
  EXPECT_TRUE(std::filesystem::exists(folder / "rank-1")) << "another attempt's words, and nobody's loss";
}

TEST_P(Restart, WhatRanksCouldNotSendBeforeTheirNodesWereGoneIsReadToo) {
  const auto id = bench.submit(recipe_request("a"));
  bench.heartbeats({id, 1}, 2, 1);
  bench.crash();
  auto late = Bench::beat({id, 1}, 0, 4);
  late.add_metrics()->set_step(4);
  late.add_checkpoints()->set_step(4);
  write_unsent(bench.folder() / "jobs" / std::to_string(id) / "attempt-1" / "unsent" / "rank-0", {late});
  bench.machine->attempts.clear();
  bench.start();
  bench.tick();
  EXPECT_EQ(bench.attempt(id, 1).cause(), "controller_lost");
  EXPECT_EQ(bench.job(id).last_checkpoint_step(), 4);
  EXPECT_EQ(bench.controller().metrics(id, 0, 0, 0, 1000).size(), 1U);
}

/// An attempt of two ranks whose first could not send its last words.
class LastWords : public ::testing::Test {
 protected:
  LastWords() {
    bench.heartbeats({id, 1}, 2, 1);
    for (int step = 2; step <= 7; ++step) late.add_metrics()->set_step(step);
    late.add_checkpoints()->set_step(4);
    late.add_checkpoints()->set_step(6);
  }
  void leave() { write_unsent(file, {late}); }
  void fill() { bench.memory().fail_writes(store::Error(store::Error::Kind::kFull, "the disk is full; make room")); }
  void make_room() { bench.memory().fail_writes(std::nullopt); }
  void end_all() { bench.executor().end_all({id, 1}, {0, 0}); }
  void expect_all_is_known() {
    EXPECT_EQ(bench.state(id), "succeeded");
    EXPECT_EQ(bench.job(id).last_checkpoint_step(), 6);
    EXPECT_EQ(bench.count_events(id, "checkpoint_saved"), 2);
    EXPECT_EQ(bench.controller().metrics(id, 0, 0, 0, 1000).size(), 6U);
    EXPECT_FALSE(std::filesystem::exists(file));
  }
  Bench bench;
  const core::JobId id = bench.submit(recipe_request("a"));
  muster::v1::HeartbeatRequest late = Bench::beat({id, 1}, 0, 7);
  const std::filesystem::path file = bench.folder() / "jobs" / std::to_string(id) / "attempt-1" / "unsent" / "rank-0";
};

TEST_F(LastWords, OfRanksThatEndWhileTheDiskIsFullAreReadAgainWhenThereIsRoom) {
  leave();
  fill();
  end_all();
  bench.pass(1min);
  EXPECT_EQ(bench.state(id), "running") << "nothing is believed that is not durable";
  EXPECT_TRUE(std::filesystem::exists(file));
  make_room();
  bench.pass(10s);
  expect_all_is_known();
}

TEST_F(LastWords, SurviveAControllerThatIsKilledWhileTheDiskIsFull) {
  leave();
  fill();
  end_all();
  bench.pass(5s);
  bench.crash();
  make_room();
  bench.start();
  bench.pass(10s);
  expect_all_is_known();
}

// Such as those of a rank whose network folder showed them late, or that an earlier controller gave up.
TEST_F(LastWords, OfAnAttemptThatIsOverAreFoundByTheNextController) {
  bench.executor().end({id, 1}, 0, {1, 0});
  bench.executor().end({id, 1}, 1, {1, 0});
  bench.pass(2s);
  ASSERT_EQ(bench.attempt(id, 2).state(), "starting");
  leave();
  write_unsent(file.parent_path() / "rank-1", {});
  const auto of_the_living = bench.folder() / "jobs" / std::to_string(id) / "attempt-2" / "unsent" / "rank-0";
  write_unsent(of_the_living, {Bench::beat({id, 2}, 0, 1)});
  bench.restart();
  bench.pass(3s);
  EXPECT_EQ(bench.controller().metrics(id, 1, 0, 0, 1000).size(), 6U);
  EXPECT_FALSE(std::filesystem::exists(file));
  EXPECT_FALSE(std::filesystem::exists(file.parent_path() / "rank-1")) << "nothing was in it";
  EXPECT_TRUE(std::filesystem::exists(of_the_living)) << "it is still being written";
}

TEST_P(Restart, AnAttemptWithoutATraceCostsOneAttempt) {
  const auto id = bench.submit(command_request("a"));
  bench.crash();
  bench.machine->attempts.clear();
  bench.start();
  bench.tick();
  EXPECT_EQ(bench.attempt(id, 1).cause(), "controller_lost");
  bench.pass(2s);
  EXPECT_TRUE(bench.machine->has({id, 2}));
}

TEST_P(Restart, RanksGetTimeToFindTheNewController) {
  const auto id = bench.submit(recipe_request("a"));
  bench.heartbeats({id, 1}, 2, 1);
  bench.crash();
  bench.clock.advance(60s);
  bench.start();
  for (core::RankNumber rank : {0U, 1U}) bench.executor().freeze({id, 1}, rank);
  bench.pass(9s);
  EXPECT_EQ(bench.attempt(id, 1).state(), "running");
  bench.pass(4s);
  EXPECT_EQ(bench.attempt(id, 1).cause(), "rank_silent") << "but not for ever";
}

TEST_P(Restart, TheTimeLimitCountsFromTheAttemptsOwnStart) {
  auto request = command_request("a");
  request.mutable_spec()->mutable_resources()->set_time_limit_ms(60000);
  const auto id = bench.submit(request);
  bench.pass(30s);
  bench.restart();
  bench.pass(29s);
  EXPECT_EQ(bench.attempt(id, 1).state(), "running");
  bench.pass(2s);
  EXPECT_EQ(bench.attempt(id, 1).cause(), "timed_out");
}

TEST_P(Restart, ADrainingAttemptIsStoppedAgain) {
  const auto id = bench.submit(command_request("a"));
  ASSERT_TRUE(bench.controller().cancel(id, "ada").ok());
  bench.tick();
  ASSERT_EQ(bench.machine->stop_count({id, 1}), 1U);
  bench.restart();
  EXPECT_EQ(bench.machine->stop_count({id, 1}), 2U);
}

TEST_P(Restart, TheMeetingPointSurvives) {
  const auto id = bench.submit(recipe_request("a"));
  muster::v1::RendezvousRequest request;
  *request.mutable_key() = Bench::beat({id, 1}, 0).key();
  request.set_endpoint("127.0.0.1:4000");
  ASSERT_TRUE(bench.controller().rendezvous(request, bench.token({id, 1})).ok());
  bench.restart();
  request.mutable_key()->set_rank(1);
  request.clear_endpoint();
  EXPECT_EQ(bench.controller().rendezvous(request, bench.token({id, 1})).value().endpoint(), "127.0.0.1:4000");
}

TEST_P(Restart, WhatWasToldIsNotToldAgain) {
  const auto id = bench.submit(recipe_request("a", 1));
  auto beat = Bench::beat({id, 1}, 0, 10);
  beat.set_resumed_from_step(0);
  beat.add_checkpoints()->set_step(10);
  EXPECT_EQ(bench.send(beat).value().checkpoints_accepted(), 1U);
  bench.restart();
  EXPECT_EQ(bench.send(beat).value().checkpoints_accepted(), 1U);
  EXPECT_EQ(bench.count_events(id, "checkpoint_saved"), 1);
  EXPECT_EQ(bench.count_events(id, "attempt_resumed"), 1);
}

// One life of a job with everything in it: submit, a rank lost, the next attempt, metrics, cancel or completion.
class CrashStory {
 public:
  CrashStory(Bench& bench, bool cancel) : bench_(bench), cancel_(cancel) {}

  // Does the next thing; true when all is done. Only what was acknowledged is remembered.
  bool advance() {
    if (!id_) {
      auto outcome = bench_.controller().submit(recipe_request("story"));
      if (outcome.ok()) id_ = outcome.value().job_id();
      return false;
    }
    bench_.clock.advance(100ms);
    bench_.tick();
    const auto view = bench_.controller().get(*id_);
    if (!view.ok()) {
      ADD_FAILURE() << "an acknowledged job is lost: " << view.refusal().text;
      return true;
    }
    const auto& job = view.value();
    if (job.state() == "succeeded" || job.state() == "cancelled" || job.state() == "failed") return true;
    if (job.attempts_size() > 0 && job.state() != "waiting") drive(job);
    return false;
  }
  core::JobId id() const { return id_.value_or(0); }

 private:
  void drive(const muster::v1::Job& job) {
    const core::AttemptKey key{*id_, job.attempts(job.attempts_size() - 1).number()};
    auto& machine = *bench_.machine;
    if (job.state() == "stopping") {
      if (machine.stop_count(key) > 0) bench_.executor().end_all(key, {cancel_ && key.number > 1 ? 99 : 1, 0});
      return;
    }
    ++step_;
    for (core::RankNumber r = 0; r < 2; ++r) {
      if (!machine.get(key).ranks[r].alive) continue;
      auto beat = Bench::beat(key, r, step_);
      beat.add_metrics()->set_step(step_);
      bench_.send(beat);
    }
    if (key.number == 1) return bench_.executor().end(key, 1, {0, 9});
    if (!cancel_) return bench_.executor().end_all(key, {0, 0});
    bench_.controller().cancel(*id_, "ada");
  }

  Bench& bench_;
  const bool cancel_;
  std::optional<core::JobId> id_;
  int step_ = 0;
};

void run_story(Bench& bench, CrashStory& story, int crash_at) {
  bench.point.steps = 0;
  bench.point.at = crash_at;
  for (int round = 0; round < 400; ++round) {
    try {
      if (story.advance()) return;
    } catch (const Crash&) {
      bench.point.at = -1;
      bench.restart();
    }
  }
  ADD_FAILURE() << "the story does not end; crash at step " << crash_at;
}

void check_story(Bench& bench, CrashStory& story, bool cancel, int crash_at) {
  SCOPED_TRACE("crash at step " + std::to_string(crash_at));
  const auto jobs = bench.controller().list({});
  ASSERT_EQ(jobs.total(), 1) << "submitted once, however often it was said";
  EXPECT_EQ(bench.state(story.id()), cancel ? "cancelled" : "succeeded");
  for (const auto& [key, starts] : bench.machine->starts) EXPECT_EQ(starts, 1) << "attempt " << key.number;
  for (const auto& [key, attempt] : bench.machine->attempts) {
    for (const auto& rank : attempt.ranks) EXPECT_TRUE(!rank.alive || !attempt.stops.empty()) << key.number;
  }
  bench.pass(5s);
  EXPECT_TRUE(bench.store().pending_actions().empty());
}

TEST_P(Restart, ACrashBetweenAnyTwoStepsLosesNothingAndStartsNothingTwice) {
  for (const bool cancel : {false, true}) {
    Bench clean(GetParam());
    CrashStory story(clean, cancel);
    run_story(clean, story, -1);
    check_story(clean, story, cancel, -1);
    const int steps = clean.point.steps;
    ASSERT_GT(steps, 30);
    for (int at = 0; at < steps; ++at) {
      Bench crashed(GetParam());
      CrashStory again(crashed, cancel);
      run_story(crashed, again, at);
      check_story(crashed, again, cancel, at);
      if (HasFailure()) return;
    }
  }
}

TEST_P(Restart, AJobCancelledBeforeItsLaunchWasRecordedIsStopped) {
  // Launched, then dead before the launch was written.
  CrashPoint& point = bench.point;
  int launches = 0;
  for (int at = 0; at < 20 && launches == 0; ++at) {
    Bench other(GetParam());
    other.point.at = at;
    core::JobId id = 0;
    try {
      id = other.controller().submit(recipe_request("a")).value().job_id();
      other.tick();
    } catch (const Crash&) {
    }
    other.point.at = -1;
    other.restart();
    if (id == 0 || !other.machine->has({id, 1})) continue;
    if (other.job(id).attempts_size() > 0) continue;
    ++launches;
    ASSERT_TRUE(other.controller().cancel(id, "ada").ok());
    other.tick();
    EXPECT_EQ(other.state(id), "cancelled");
    EXPECT_GE(other.machine->stop_count({id, 1}), 1U);
    EXPECT_EQ(other.heartbeat({id, 1}, 0), muster::v1::DIRECTIVE_STOP);
  }
  EXPECT_EQ(launches, 1);
  EXPECT_EQ(point.at, -1);
}

}  // namespace
}  // namespace service::testing
