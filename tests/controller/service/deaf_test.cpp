// Goal: while the store's disk stands still ranks are answered at once, and nothing is concluded from silence.
// Method: the rule is pure; the rest are the real threads on a store in memory whose writes do not come back.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <atomic>
#include <future>
#include <shared_mutex>
#include <thread>

#include "controller/common/hearing.h"
#include "controller/common/loop.h"
#include "controller/ranks/rank_metrics.h"
#include "tests/controller/service/bench.h"
#include "tests/manual_clock.h"

namespace service::testing {
namespace {

using ::testing::HasSubstr;

TEST(HearingTest, ARoundInTimeHearsAndALateOneWasDeaf) {
  common::ManualClock clock;
  common::Hearing hearing(clock);
  EXPECT_FALSE(hearing.was_deaf());
  clock.advance(common::Hearing::kLate);
  EXPECT_FALSE(hearing.was_deaf());
  clock.advance(common::Hearing::kLate + 1ms);
  EXPECT_TRUE(hearing.was_deaf());
  EXPECT_FALSE(hearing.was_deaf());
}

TEST(HearingTest, AWriteThatDoesNotComeBackMakesDeafUntilItDoes) {
  common::ManualClock clock;
  common::Hearing hearing(clock);
  const auto deaf_after = [&](core::Millis time) {
    clock.advance(time);
    return hearing.was_deaf();
  };
  EXPECT_FALSE(hearing.was_deaf());
  const auto begun = clock.monotonic();
  {
    const common::Hearing::Write stuck(hearing);
    EXPECT_FALSE(deaf_after(400ms));
    EXPECT_FALSE(hearing.is_slow());
    { const common::Hearing::Write another(hearing); }
    EXPECT_FALSE(deaf_after(400ms)) << "one that takes its time is no sign yet";
    EXPECT_TRUE(hearing.is_slow());
    EXPECT_FALSE(hearing.stuck_since());
    for (int round = 0; round < 20; ++round) EXPECT_TRUE(deaf_after(400ms)) << round;
    EXPECT_EQ(hearing.stuck_since(), begun);
  }
  EXPECT_FALSE(hearing.stuck_since());
  EXPECT_TRUE(deaf_after(100ms)) << "until now";
  EXPECT_FALSE(deaf_after(100ms));
  EXPECT_EQ(hearing.written_at(), clock.monotonic() - 200ms);
}

TEST(HearingTest, AWriteThatStoodStillBetweenTwoRoundsIsNoticed) {
  common::ManualClock clock;
  common::Hearing hearing(clock);
  hearing.was_deaf();
  std::optional<common::Hearing::Write> write(std::in_place, hearing);
  clock.advance(600ms);
  hearing.was_deaf();
  clock.advance(600ms);
  write.reset();
  EXPECT_TRUE(hearing.was_deaf());
}

TEST(ErrandsTest, OneThatDoesNotComeBackIsWaitedForNoLongerThanAsked) {
  std::promise<void> gate;
  common::Errands errands(true);
  std::atomic<int> done = 0;
  EXPECT_FALSE(errands.run([&, open = gate.get_future().share()] { open.wait(), ++done; }, 20ms));
  EXPECT_FALSE(errands.run([&] { ++done; }, 20ms)) << "one after the other";
  EXPECT_EQ(done, 0);
  gate.set_value();
  EXPECT_TRUE(errands.run([&] { ++done; }, 60s));
  EXPECT_EQ(done, 3) << "what nobody waited for is done all the same";
}

/// Counts what the controller writes, and can hold what it counts of its jobs: that is read from the disk.
class WatchedStore : public CrashingStore {
 public:
  explicit WatchedStore(store::Store& inner) : CrashingStore(inner, never_, all_readable_), inner_(inner) {}
  std::vector<std::int64_t> append(std::span<const store::Commit> commits) override { return inner_.append(commits); }
  void set_actions(std::span<const std::int64_t> ids, store::ActionState state) override {
    inner_.set_actions(ids, state);
  }
  void set_launching(std::span<const store::LaunchingAction> actions) override { inner_.set_launching(actions); }
  void add_metrics(std::span<const store::MetricRow> rows, std::span<const store::DeclaredSeries> declared) override {
    rows_given += rows.size();
    inner_.add_metrics(rows, declared);
  }
  std::int64_t count(std::span<const core::JobState> states, const std::string& sweep) override {
    const std::shared_lock wait(counts);
    return inner_.count(states, sweep);
  }

  std::atomic<std::size_t> rows_given = 0;
  std::shared_mutex counts;

 private:
  store::Store& inner_;
  CrashPoint never_;
  std::map<core::JobId, int> all_readable_;
};

class TellingExecutor : public FakeExecutor {
 public:
  void was_deaf() override { ++told_deaf; }
  std::atomic<int> told_deaf = 0;
};

/// A controller with its threads, and a disk that the test holds.
class StandingStore : public ::testing::Test {
 protected:
  StandingStore() {
    controller_ = make_controller(store_, executor_, clock_, {.data_folder = folder_.path(), .people_token = "people"});
    controller_->start({"127.0.0.1:7600", "http://127.0.0.1:7601/"});
  }
  ~StandingStore() override {
    memory_.hold_writes(false);
    if (probe_reader_ < 0) let_probe_go();
    controller_.reset();
    ::close(probe_reader_);
  }
  template <typename Condition>
  bool eventually(const Condition& holds, core::Millis limit = 60s) {
    for (const auto end = clock_.monotonic() + limit; !holds();) {
      if (clock_.monotonic() > end) return false;
      std::this_thread::sleep_for(5ms);
    }
    return true;
  }
  /// A job of two ranks that have joined, told where they went on from, and heard a moment ago.
  core::JobId under_way() {
    const auto id = controller_->submit(recipe_request("a", 2)).value().job_id();
    EXPECT_TRUE(eventually([&] { return state(id) == "running"; }));
    for (core::RankNumber rank : {0U, 1U}) {
      auto beat = Bench::beat({id, 1}, rank, 1);
      beat.set_resumed_from_step(0);
      EXPECT_TRUE(eventually([&] { return send(beat); }));
    }
    EXPECT_TRUE(eventually([&] { return types(id).size() >= 5; })) << "submitted, launched, joined twice, resumed";
    return id;
  }
  std::string state(core::JobId id) { return controller_->get(id).value().state(); }
  std::vector<std::string> types(core::JobId id) {
    std::vector<std::string> out;
    for (const auto& event : controller_->events(id, 0, 1000)) out.push_back(event.type());
    return out;
  }
  /// The answer, with the counts that were accepted. The test fails if the heartbeat is refused.
  muster::v1::HeartbeatResponse answer(const muster::v1::HeartbeatRequest& beat) {
    const auto outcome = controller_->heartbeat(beat, common::rank_token(memory_.secret(), beat.key().job_id(), 1));
    EXPECT_TRUE(outcome.ok());
    return outcome.ok() ? outcome.value() : muster::v1::HeartbeatResponse{};
  }
  bool send(const muster::v1::HeartbeatRequest& beat) {
    return controller_->heartbeat(beat, common::rank_token(memory_.secret(), beat.key().job_id(), 1)).ok();
  }
  /// Holds musterd's own probe, as if the next write of whatever kind to the data folder waited.
  void hold_probe() {
    std::filesystem::remove(folder_.path() / "disk-probe");
    ASSERT_EQ(::mkfifo((folder_.path() / "disk-probe").c_str(), 0600), 0);
  }
  void let_probe_go() { probe_reader_ = ::open((folder_.path() / "disk-probe").c_str(), O_RDONLY | O_NONBLOCK); }

  TempFolder folder_;
  store::MemoryStore memory_;
  WatchedStore store_{memory_};
  common::RealClock clock_;
  TellingExecutor executor_;
  std::unique_ptr<RunningController> controller_;
  int probe_reader_ = -1;
};

TEST_F(StandingStore, HeartbeatsAreAnsweredAndWhatTheyBringIsWrittenOnce) {
  const auto id = under_way();
  memory_.hold_writes(true);
  core::Millis longest{0};
  int not_waited_for = 0;
  for (int round = 0; round < 8; ++round) {
    auto beat = Bench::beat({id, 1}, 0, round + 1);
    for (int step = 1; step <= round + 1; ++step) beat.add_metrics()->set_step(step);
    beat.add_checkpoints()->set_step(1);
    const auto begin = clock_.monotonic();
    const auto said = answer(beat);
    const auto took = clock_.monotonic() - begin;
    longest = std::max(longest, took);
    if (round > 3 && took < common::Hearing::kPatience) ++not_waited_for;
    EXPECT_EQ(said.metrics_accepted(), 0U);
    EXPECT_EQ(said.checkpoints_accepted(), 0U);
    EXPECT_EQ(said.directive(), muster::v1::DIRECTIVE_CONTINUE);
  }
  EXPECT_LT(longest, 1900ms) << "a rank waits two seconds for an answer";
  // A busy machine may hold up one or two of four.
  EXPECT_GE(not_waited_for, 2) << "known to stand still, and not waited for";
  memory_.hold_writes(false);
  EXPECT_TRUE(eventually([&] { return memory_.metrics(id, 1, 0, 0, 100).size() == 8; }));
  EXPECT_EQ(store_.rows_given, 8U) << "told up to eight times";
  auto beat = Bench::beat({id, 1}, 0, 8);
  for (int step = 1; step <= 8; ++step) beat.add_metrics()->set_step(step);
  beat.add_checkpoints()->set_step(1);
  EXPECT_TRUE(eventually([&] {
    const auto said = answer(beat);
    return said.metrics_accepted() == 8 && said.checkpoints_accepted() == 1;
  }));
  const auto told = types(id);
  EXPECT_EQ(std::ranges::count(told, "checkpoint_saved"), 1) << "told eight times";
}

TEST_F(StandingStore, MetricsOfARankThatEndedMeanwhileAreWrittenAfterwards) {
  const auto id = under_way();
  memory_.hold_writes(true);
  for (int step = 1; step <= 5; ++step) {
    auto beat = Bench::beat({id, 1}, 0, step);
    beat.add_metrics()->set_step(step);
    answer(beat);
  }
  memory_.hold_writes(false);
  EXPECT_TRUE(eventually([&] { return memory_.metrics(id, 1, 0, 0, 100).size() == 5; }));
}

TEST_F(StandingStore, AnEventThatDoesNotComeBackTellsOfItAsAMetricDoes) {
  const auto id = under_way();
  memory_.hold_writes(true);
  auto beat = Bench::beat({id, 1}, 0, 2);
  beat.add_checkpoints()->set_step(2);
  EXPECT_TRUE(eventually([&] {
    answer(beat);
    return !controller_->status().store_problem().empty();
  }));
  memory_.hold_writes(false);
  EXPECT_TRUE(eventually([&] { return controller_->status().store_problem().empty(); }));
}

TEST_F(StandingStore, NobodyIsCalledSilentUntilItGoesOnAndThenAfterFreshTime) {
  const auto id = under_way();
  memory_.hold_writes(true);
  executor_.freeze({id, 1}, 1);  // stopped, and so silent after two and a half seconds
  for (const auto end = clock_.monotonic() + 5s; clock_.monotonic() < end;) {
    auto beat = Bench::beat({id, 1}, 0, 2);
    beat.add_metrics()->set_step(2);
    answer(beat);
    std::this_thread::sleep_for(20ms);
  }
  EXPECT_GT(executor_.told_deaf, 0) << "executors conclude from silence, too";
  memory_.hold_writes(false);
  const auto begin = clock_.monotonic();
  const auto silent = [&] {
    send(Bench::beat({id, 1}, 0, 2));
    const auto told = types(id);
    return std::ranges::count(told, "rank_silent") > 0;
  };
  EXPECT_TRUE(eventually(silent)) << "found when it can be";
  EXPECT_GE(clock_.monotonic() - begin, 2s);
}

// Nothing is written, so nothing but the probe tells of the disk.
TEST_F(StandingStore, AnIdleControllerAsksItsDiskBeforeItCallsARankSilent) {
  const auto id = under_way();
  hold_probe();
  executor_.freeze({id, 1}, 1);
  const auto silent = [&] {
    send(Bench::beat({id, 1}, 0, 1));
    const auto told = types(id);
    return std::ranges::count(told, "rank_silent") > 0;
  };
  EXPECT_FALSE(eventually(silent, 5s));
  EXPECT_THAT(controller_->status().store_problem(), HasSubstr("stands still"));
  let_probe_go();
  EXPECT_TRUE(eventually(silent));
}

TEST_F(StandingStore, WhoAsksIsToldThoughNothingIsWrittenAndNobodyMissed) {
  hold_probe();
  EXPECT_TRUE(eventually([&] { return !controller_->status().store_problem().empty(); }));
  EXPECT_THAT(controller_->status().store_problem(), HasSubstr("stands still"));
  let_probe_go();
  EXPECT_TRUE(eventually([&] { return controller_->status().store_problem().empty(); }));
}

// Ranks that wait for one another give up after two minutes of "not yet".
TEST_F(StandingStore, RankZeroIsNotCalledLateForTheMeeting) {
  const auto id = under_way();
  muster::v1::RendezvousRequest request;
  *request.mutable_key() = Bench::beat({id, 1}, 1).key();
  const auto token = common::rank_token(memory_.secret(), id, 1);
  EXPECT_TRUE(controller_->rendezvous(request, token).ok());
  memory_.hold_writes(true);
  auto beat = Bench::beat({id, 1}, 0, 2);
  beat.add_metrics()->set_step(2);
  EXPECT_TRUE(eventually([&] {
    answer(beat);
    return !controller_->rendezvous(request, token).ok();
  }));
  memory_.hold_writes(false);
  EXPECT_TRUE(eventually([&] { return controller_->rendezvous(request, token).ok(); }));
}

TEST_F(StandingStore, IsToldToPeopleAndRefusesTheirChangesAtOnce) {
  const auto id = under_way();
  EXPECT_EQ(controller_->status().store_problem(), "");
  memory_.hold_writes(true);
  auto beat = Bench::beat({id, 1}, 0, 2);
  beat.add_metrics()->set_step(2);
  ASSERT_TRUE(eventually([&] {
    answer(beat);
    return !controller_->status().store_problem().empty();
  }));
  EXPECT_THAT(controller_->status().store_problem(), HasSubstr("no write has come back since 20"));
  const auto begin = clock_.monotonic();
  const auto refused = controller_->submit(command_request("b"));
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.refusal().kind, common::Refusal::Kind::kUnchanged);
  EXPECT_THAT(refused.refusal().text, HasSubstr("nothing was changed: the disk of the data folder stands still"));
  EXPECT_LT(clock_.monotonic() - begin, 1s);
  std::unique_lock counts(store_.counts);  // reads that are not in memory stand still, too
  auto asked = std::async(std::launch::async, [&] { return controller_->status(); });
  const bool answered = asked.wait_for(60s) == std::future_status::ready;
  counts.unlock();
  EXPECT_TRUE(answered);
  EXPECT_THAT(asked.get().store_problem(), HasSubstr("stands still"));
  memory_.hold_writes(false);
  EXPECT_TRUE(eventually([&] { return controller_->status().store_problem().empty(); }));
  EXPECT_TRUE(controller_->submit(command_request("b")).ok());
}

}  // namespace
}  // namespace service::testing
