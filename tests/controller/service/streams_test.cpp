// Goal: a rank's stream is as good as calls: nothing is lost, directives come at once, and what is late is not silent.
// Method: the streams of a controller, without a network. Time moves by hand where threads play no part.
#include <gmock/gmock.h>

#include <thread>

#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

using ::testing::HasSubstr;

/// A rank that keeps what it is told. Thread-safe.
class Answers {
 public:
  ranks::TellRank teller() {
    return [this](const muster::v1::BeatResponse& answer) {
      std::lock_guard lock(mutex_);
      answers_.push_back(answer);
    };
  }
  std::size_t count() const {
    std::lock_guard lock(mutex_);
    return answers_.size();
  }
  muster::v1::BeatResponse newest() const {
    std::lock_guard lock(mutex_);
    return answers_.empty() ? muster::v1::BeatResponse{} : answers_.back();
  }

 private:
  mutable std::mutex mutex_;
  std::vector<muster::v1::BeatResponse> answers_;
};

/// A task that keeps what it is told.
class TaskAnswers {
 public:
  ranks::TellTask teller() {
    return [this](const muster::v1::TaskResponse& answer) { answers_.push_back(answer); };
  }
  std::size_t count() const { return answers_.size(); }
  const muster::v1::TaskResponse& newest() const { return answers_.back(); }

 private:
  std::vector<muster::v1::TaskResponse> answers_;
};

class Streams : public ::testing::Test {
 protected:
  std::shared_ptr<ranks::RankStream> open(core::AttemptKey key, core::RankNumber rank, Answers& into) {
    auto opened = bench.controller().open_stream(Bench::beat(key, rank).key(), bench.token(key), into.teller());
    EXPECT_TRUE(opened.ok());
    return opened.ok() ? opened.value() : nullptr;
  }
  static void send(ranks::RankStream& stream, const muster::v1::HeartbeatRequest& request) {
    const auto outcome = stream.beat(request);
    ASSERT_TRUE(outcome.ok());
    if (outcome.value()) stream.work();
  }
  muster::v1::HeartbeatRequest with_rows(core::AttemptKey key, std::uint64_t first, int rows) {
    auto request = Bench::beat(key, 0, static_cast<core::Step>(first) + rows);
    request.set_first_metric(first);
    for (int i = 0; i < rows; ++i) request.add_metrics()->set_step(static_cast<core::Step>(first) + i + 1);
    return request;
  }
  Bench bench;
  Answers told, other;
};

TEST_F(Streams, OpenWithTheAttemptsOwnToken) {
  const auto id = bench.submit(recipe_request("a"));
  const auto key = Bench::beat({id, 1}, 0).key();
  const auto bad = bench.controller().open_stream(key, bench.token({id, 2}), told.teller());
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.refusal().kind, common::Refusal::Kind::kUnauthenticated);
  EXPECT_FALSE(bench.controller().open_stream(Bench::beat({id, 1}, 9).key(), bench.token({id, 1}), told.teller()).ok());
  const auto stream = open({id, 1}, 0, told);
  send(*stream, Bench::beat({id, 1}, 0, 1));
  EXPECT_EQ(bench.job(id).ranks(0).state(), "running") << "the first heartbeat says that the rank is there";
  EXPECT_EQ(told.newest().heartbeat_interval_ms(), 500);
  EXPECT_EQ(told.newest().requests_heard(), 1U);
}

TEST_F(Streams, AnswerWhenThereIsSomethingToTell) {
  const auto id = bench.submit(recipe_request("a"));
  const auto stream = open({id, 1}, 0, told);
  send(*stream, Bench::beat({id, 1}, 0, 1));
  const auto first = told.count();
  for (int i = 0; i < 9; ++i) {
    bench.clock.advance(500ms);
    send(*stream, Bench::beat({id, 1}, 0, 2 + i));
  }
  EXPECT_EQ(told.count(), first) << "nothing new for four and a half seconds";
  bench.clock.advance(500ms);
  send(*stream, Bench::beat({id, 1}, 0, 12));
  EXPECT_EQ(told.count(), first + 1) << "a sign of life";
  EXPECT_EQ(told.newest().requests_heard(), 11U);
}

TEST_F(Streams, TellADirectiveAtOnce) {
  const auto id = bench.submit(recipe_request("a"));
  const auto stream = open({id, 1}, 0, told);
  send(*stream, Bench::beat({id, 1}, 0, 1));
  ASSERT_EQ(told.newest().directive(), muster::v1::DIRECTIVE_CONTINUE);
  ASSERT_TRUE(bench.controller().cancel(id, "ada").ok());
  EXPECT_EQ(told.newest().directive(), muster::v1::DIRECTIVE_SAVE_AND_LEAVE) << "without a heartbeat in between";
  const auto count = told.count();
  stream->close();
  bench.executor().end_all({id, 1}, {0, 9});
  bench.tick();
  EXPECT_EQ(told.count(), count) << "a closed stream is told nothing";
}

TEST_F(Streams, RowsAreStoredOnceHoweverOftenTheyAreSent) {
  const auto id = bench.submit(recipe_request("a"));
  const auto stream = open({id, 1}, 0, told);
  send(*stream, with_rows({id, 1}, 0, 3));
  auto again = with_rows({id, 1}, 1, 4);
  again.set_answer_soon(true);
  send(*stream, again);
  EXPECT_EQ(told.newest().metrics_durable(), 5U);
  EXPECT_EQ(bench.memory().metrics(id, 1, 0, 0, 100).size(), 5U);
  auto gap = with_rows({id, 1}, 9, 1);
  gap.set_answer_soon(true);
  send(*stream, gap);
  EXPECT_EQ(told.newest().metrics_durable(), 10U) << "what the rank has lost is not waited for";
}

TEST_F(Streams, ANewStreamGoesOnWithTheNumbersOfTheOld) {
  const auto id = bench.submit(recipe_request("a"));
  send(*open({id, 1}, 0, told), with_rows({id, 1}, 0, 3));
  const auto stream = open({id, 1}, 0, other);
  auto request = with_rows({id, 1}, 2, 3);
  request.set_answer_soon(true);
  request.set_first_checkpoint(4);
  request.add_checkpoints()->set_step(5);
  send(*stream, request);
  EXPECT_EQ(other.newest().metrics_durable(), 5U);
  EXPECT_EQ(other.newest().checkpoints_durable(), 5U);
  EXPECT_EQ(bench.count_events(id, "checkpoint_saved"), 1);
}

class TasksOnStreams : public Streams {
 protected:
  std::shared_ptr<ranks::TaskStream> open_task(core::AttemptKey key, core::RankNumber rank = 0) {
    auto opened = bench.controller().open_task_stream(Bench::beat(key, rank).key(), bench.token(key), told.teller());
    EXPECT_TRUE(opened.ok());
    return opened.ok() ? opened.value() : nullptr;
  }
  static muster::v1::TaskRequest task(muster::v1::ProcessState state, bool answer_soon = false) {
    muster::v1::TaskRequest request;
    request.set_state(state);
    request.set_answer_soon(answer_soon);
    return request;
  }
  TaskAnswers told;
};

TEST_F(TasksOnStreams, OpenWithTheAttemptsOwnTokenAndReachTheExecutor) {
  const auto id = bench.submit(recipe_request("a"));
  const auto key = Bench::beat({id, 1}, 0).key();
  const auto bad = bench.controller().open_task_stream(key, bench.token({id, 2}), told.teller());
  ASSERT_FALSE(bad.ok());
  EXPECT_EQ(bad.refusal().kind, common::Refusal::Kind::kUnauthenticated);
  const auto unknown = Bench::beat({id, 1}, 9).key();
  EXPECT_FALSE(bench.controller().open_task_stream(unknown, bench.token({id, 1}), told.teller()).ok());
  const auto stream = open_task({id, 1});
  EXPECT_FALSE(stream->beat(task(muster::v1::PROCESS_RUNNING)).value()) << "nothing is left to be written";
  ASSERT_EQ(bench.machine->tasks.size(), 1U);
  EXPECT_EQ(bench.machine->tasks[0].second.process, executors::TaskReport::Process::kRunning);
  EXPECT_EQ(told.newest().interval_ms(), 500);
  EXPECT_EQ(told.newest().requests_heard(), 1U);
}

// An agent on musterd's own machine has all ranks of an attempt.
TEST_F(TasksOnStreams, TellOfTheRankThatEachRequestNames) {
  const auto id = bench.submit(command_request("a", 2));
  const auto stream = open_task({id, 1});
  auto request = task(muster::v1::PROCESS_RUNNING);
  for (const std::uint32_t rank : {0U, 1U}) {
    request.mutable_key()->set_rank(rank);
    ASSERT_TRUE(stream->beat(request).ok());
  }
  EXPECT_THAT(bench.machine->task_ranks, ::testing::ElementsAre(0U, 1U));
  request.mutable_key()->set_rank(2);
  const auto refused = stream->beat(request);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.refusal().text, "rank 2 of an attempt of 2 ranks");
  EXPECT_EQ(bench.machine->tasks.size(), 2U);
}

TEST_F(TasksOnStreams, AreAnsweredWhenTheyAskOrAfterFiveSeconds) {
  const auto id = bench.submit(recipe_request("a"));
  const auto stream = open_task({id, 1});
  for (int i = 0; i < 10; ++i) {
    ASSERT_TRUE(stream->beat(task(muster::v1::PROCESS_RUNNING)).ok());
    bench.clock.advance(500ms);
  }
  EXPECT_EQ(told.count(), 1U) << "nothing new for four and a half seconds";
  ASSERT_TRUE(stream->beat(task(muster::v1::PROCESS_RUNNING)).ok());
  EXPECT_EQ(told.count(), 2U) << "a sign of life";
  ASSERT_TRUE(stream->beat(task(muster::v1::PROCESS_EXITED, true)).ok());
  EXPECT_EQ(told.count(), 3U);
  EXPECT_EQ(told.newest().requests_heard(), 12U) << "so the task knows that its end is heard";
}

TEST_F(TasksOnStreams, AreToldADirectiveAtOnceWithItsReason) {
  const auto id = bench.submit(recipe_request("a"));
  const auto stream = open_task({id, 1});
  ASSERT_TRUE(stream->beat(task(muster::v1::PROCESS_RUNNING)).ok());
  ASSERT_EQ(told.newest().directive(), muster::v1::DIRECTIVE_CONTINUE);
  ASSERT_TRUE(bench.controller().cancel(id, "ada").ok());
  EXPECT_EQ(told.newest().directive(), muster::v1::DIRECTIVE_SAVE_AND_LEAVE) << "without a request in between";
  muster::v1::TaskRequest called;
  *called.mutable_key() = Bench::beat({id, 1}, 0).key();
  const auto call = bench.controller().task(called, bench.token({id, 1}));
  EXPECT_FALSE(told.newest().stop_why().empty());
  EXPECT_EQ(told.newest().stop_why(), call.value().stop_why());
  EXPECT_EQ(told.newest().stop_grace_ms(), call.value().stop_grace_ms());
  const auto count = told.count();
  stream->close();
  bench.executor().end_all({id, 1}, {0, 9});
  bench.tick();
  EXPECT_EQ(told.count(), count) << "a closed stream is told nothing";
}

TEST_F(TasksOnStreams, AreToldAfterWhichStepAllRanksLeave) {
  const auto id = bench.submit(command_request("a"));
  const auto stream = open_task({id, 1});
  ASSERT_TRUE(stream->beat(task(muster::v1::PROCESS_RUNNING)).ok());
  auto beat = Bench::beat({id, 1}, 0, 50);
  beat.set_step_ms(100);
  ASSERT_TRUE(bench.send(beat).ok());
  ASSERT_TRUE(bench.controller().cancel(id, "ada").ok());
  ASSERT_EQ(told.newest().directive(), muster::v1::DIRECTIVE_SAVE_AND_LEAVE);
  EXPECT_EQ(told.newest().stop_at_step(), 50 + 35 + 1);
  beat.set_step(80);
  ASSERT_TRUE(bench.send(beat).ok());
  bench.tick();
  const auto& stops = bench.machine->attempts.at({id, 1}).stops;
  ASSERT_EQ(stops.size(), 1U);
  EXPECT_EQ(stops[0].at_step, 50 + 35 + 1) << "the same for whoever is told later";
}

TEST_F(TasksOnStreams, OfAProgramThatReportsNoStepsAreToldNone) {
  const auto id = bench.submit(command_request("a"));
  const auto stream = open_task({id, 1});
  ASSERT_TRUE(stream->beat(task(muster::v1::PROCESS_RUNNING)).ok());
  ASSERT_TRUE(bench.controller().cancel(id, "ada").ok());
  ASSERT_EQ(told.newest().directive(), muster::v1::DIRECTIVE_SAVE_AND_LEAVE);
  EXPECT_FALSE(told.newest().has_stop_at_step());
}

TEST_F(TasksOnStreams, OfAnAttemptThatIsOverAreToldToStopAndSayNothingNew) {
  const auto id = bench.submit(recipe_request("a"));
  const auto stream = open_task({id, 1});
  ASSERT_TRUE(stream->beat(task(muster::v1::PROCESS_RUNNING)).ok());
  ASSERT_TRUE(bench.controller().cancel(id, "ada").ok());
  bench.executor().end_all({id, 1}, {0, 9});
  bench.tick();
  EXPECT_EQ(told.newest().directive(), muster::v1::DIRECTIVE_STOP);
  const auto count = bench.machine->tasks.size();
  ASSERT_TRUE(stream->beat(task(muster::v1::PROCESS_RUNNING)).ok());
  EXPECT_EQ(bench.machine->tasks.size(), count);
}

// Each of musterd's own words is read 400 ms late.
TEST_F(TasksOnStreams, AnOverloadSlowsTasksDownAndTheExecutorKnows) {
  const auto id = bench.submit(recipe_request("a"));
  const auto stream = open_task({id, 1});
  auto& reading = *bench.controller().reading();
  std::uint64_t word = 0;
  core::Millis late{0};
  reading.attach([&](std::uint64_t n) { word = n; });
  bench.pass(60s, [&] {
    if (word != 0 && (late += 100ms) >= 400ms) {
      late = 0ms;
      reading.arrived(std::exchange(word, 0));
    }
    bench.heartbeats({id, 1}, 2, 1);
  });
  ASSERT_TRUE(stream->beat(task(muster::v1::PROCESS_RUNNING)).ok());
  EXPECT_EQ(told.newest().interval_ms(), 4000);
  muster::v1::TaskRequest called;
  *called.mutable_key() = Bench::beat({id, 1}, 0).key();
  EXPECT_EQ(bench.controller().task(called, bench.token({id, 1})).value().interval_ms(), 4000);
  EXPECT_EQ(bench.machine->task_missed_after, 12s) << "three intervals";
  EXPECT_LT(bench.machine->tasks_read_until, bench.clock.monotonic());
  reading.detach();
}

// Goal: a heartbeat that has arrived and is not read yet counts as heard.
// Method: musterd's own word is read later and later, and no heartbeat is read meanwhile.
class LateReading : public Streams {
 protected:
  void SetUp() override {
    id_ = bench.submit(recipe_request("a"));
    for (core::RankNumber rank : {0U, 1U}) {
      streams_.push_back(open({id_, 1}, rank, told));
      send(*streams_.back(), Bench::beat({id_, 1}, rank, 1));
    }
    for (core::RankNumber rank : {0U, 1U}) bench.executor().freeze({id_, 1}, rank);
    bench.controller().reading()->attach([this](std::uint64_t n) { word_ = n; });
  }
  void TearDown() override { bench.controller().reading()->detach(); }
  void read_word() {
    if (word_ != 0) bench.controller().reading()->arrived(std::exchange(word_, 0));
  }
  void beat() {
    for (core::RankNumber rank : {0U, 1U}) send(*streams_[rank], Bench::beat({id_, 1}, rank, 1));
  }
  core::JobId id_ = 0;
  std::vector<std::shared_ptr<ranks::RankStream>> streams_;
  std::uint64_t word_ = 0;
};

TEST_F(LateReading, NobodyIsSilentAsLongAsNothingIsRead) {
  bench.pass(60s);
  EXPECT_EQ(bench.count_events(id_, "rank_silent"), 0);
  EXPECT_THAT(bench.controller().status().overload(), HasSubstr("overloaded: heartbeats are read"));
  read_word();
  bench.pass(2s, [&] { read_word(); });
  EXPECT_EQ(bench.count_events(id_, "rank_silent"), 0) << "fresh time";
  bench.pass(20s, [&] { read_word(); });
  EXPECT_GE(bench.count_events(id_, "rank_silent"), 1) << "read in time, and nothing was there";
}

TEST_F(LateReading, SilenceIsJudgedByWhatHasBeenRead) {
  // Words are read 200 ms late, since one tick sends them and the one after next reads them. That is not called late.
  std::vector<std::pair<core::Millis, std::uint64_t>> waiting;
  core::Millis gone{0};
  while (bench.count_events(id_, "rank_silent") == 0 && gone < 10s) {
    bench.pass(100ms, [&] {
      if (word_ != 0) waiting.emplace_back(bench.clock.monotonic() + 100ms, std::exchange(word_, 0));
      while (!waiting.empty() && waiting.front().first <= bench.clock.monotonic()) {
        bench.controller().reading()->arrived(waiting.front().second);
        waiting.erase(waiting.begin());
      }
    });
    gone += 100ms;
  }
  EXPECT_GE(gone, 2600ms) << "two and a half seconds, and what may be unread";
  EXPECT_LE(gone, 3200ms);
}

TEST_F(LateReading, AnOverloadSlowsRanksDownAndGivesThemTime) {
  // Each word is read 400 ms late.
  core::Millis late{0};
  const auto slow = [&] {
    if (word_ != 0 && (late += 100ms) >= 400ms) {
      late = 0ms;
      read_word();
    }
  };
  bench.pass(2s, [&] {
    slow();
    beat();
  });
  EXPECT_EQ(told.newest().heartbeat_interval_ms(), 1000) << "the answer to the next heartbeat tells it";
  EXPECT_EQ(bench.controller().status().heartbeat_floor_ms(), 1000);
  bench.pass(60s, [&] {
    slow();
    // At the interval that was told.
    if (bench.clock.monotonic() % told.newest().heartbeat_interval_ms() == 0ms) beat();
  });
  EXPECT_EQ(told.newest().heartbeat_interval_ms(), 4000);
  EXPECT_EQ(bench.count_events(id_, "rank_silent"), 0);
  auto& reading = *bench.controller().reading();
  read_word();
  reading.attach([&](std::uint64_t n) { reading.arrived(n); });
  bench.pass(120s, [&] {
    if (bench.clock.monotonic() % told.newest().heartbeat_interval_ms() == 0ms) beat();
  });
  EXPECT_EQ(told.newest().heartbeat_interval_ms(), 500) << "the load is gone";
  EXPECT_EQ(bench.controller().status().overload(), "");
  EXPECT_EQ(bench.count_events(id_, "rank_silent"), 0);
}

/// A controller with its threads, and a disk that the test holds.
class StreamsAndDisk : public ::testing::Test {
 protected:
  StreamsAndDisk() {
    controller_ =
        make_controller(memory_, executor_, clock_, {.data_folder = folder_.path(), .people_token = "people"});
    controller_->start({"127.0.0.1:7600", ""});
    id_ = controller_->submit(recipe_request("a", 1)).value().job_id();
    EXPECT_TRUE(eventually([&] { return controller_->get(id_).value().state() == "running"; }));
    const auto key = Bench::beat({id_, 1}, 0).key();
    stream_ = controller_->open_stream(key, common::rank_token(memory_.secret(), id_, 1), told_.teller()).value();
  }
  ~StreamsAndDisk() override { memory_.hold_writes(false); }
  bool eventually(const std::function<bool()>& holds) {
    for (const auto end = clock_.monotonic() + 60s; !holds();) {
      if (clock_.monotonic() > end) return false;
      std::this_thread::sleep_for(5ms);
    }
    return true;
  }
  muster::v1::HeartbeatRequest row(std::uint64_t number, bool soon = false) {
    auto request = Bench::beat({id_, 1}, 0, static_cast<core::Step>(number));
    request.set_first_metric(number);
    request.add_metrics()->set_step(static_cast<core::Step>(number) + 1);
    request.set_answer_soon(soon);
    return request;
  }
  TempFolder folder_;
  store::MemoryStore memory_;
  common::RealClock clock_;
  FakeExecutor executor_;
  std::unique_ptr<RunningController> controller_;
  core::JobId id_ = 0;
  Answers told_;
  std::shared_ptr<ranks::RankStream> stream_;
};

TEST_F(StreamsAndDisk, TheCountThatIsDurableIsPushedWhenARankWaitsForIt) {
  const auto work_is_due = stream_->beat(row(0, true));
  ASSERT_TRUE(work_is_due.ok());
  if (work_is_due.value()) stream_->work();
  EXPECT_TRUE(eventually([&] { return told_.newest().metrics_durable() == 1; })) << "no further heartbeat is needed";
}

TEST_F(StreamsAndDisk, AStandingDiskHoldsUpNoHeartbeatAndRowsAreAcknowledgedWhenTheyAreDurable) {
  memory_.hold_writes(true);
  const auto begin = clock_.monotonic();
  for (std::uint64_t i = 0; i < 200; ++i) ASSERT_TRUE(stream_->beat(row(i)).ok());
  EXPECT_LT(clock_.monotonic() - begin, 1s);
  EXPECT_EQ(told_.newest().metrics_durable(), 0U);
  std::uint64_t next = 200;
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(stream_->beat(row(next++)).ok());
    return told_.newest().store_waits();
  })) << "the rank is to keep its rows";
  memory_.hold_writes(false);
  EXPECT_TRUE(eventually([&] {
    EXPECT_TRUE(stream_->beat(row(next, true)).ok());
    return told_.newest().metrics_durable() == next + 1;
  }));
  EXPECT_EQ(memory_.metrics(id_, 1, 0, 0, 1000).size(), next + 1);
}

}  // namespace
}  // namespace service::testing
