// Goal: whatever happens, in whatever order, jobs end, budgets bound them, and nothing runs twice or unwatched.
// Method: many jobs under seeded random faults (ranks that die, freeze or leave; a controller that crashes anywhere; a
// disk that fills; people who cancel, requeue, hold and release; a scheduler with a queue that is down at times), with
// rules checked at every tick. A failing seed is printed.
#include <random>
#include <set>

#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

class Simulation {
 public:
  Simulation(std::uint64_t seed, StoreKind kind) : random_(seed), bench_(kind), memory_(kind == StoreKind::kMemory) {
    bench_.machine->queue = seed % 2 == 0;
  }

  void run(int jobs) {
    for (int round = 0; round < 600; ++round) {
      if (static_cast<int>(ids_.size()) < jobs && chance(0.1)) submit();
      guarded([&] { round_of_faults(); });
      pass();
      check();
      if (::testing::Test::HasFailure()) return;
    }
    settle(jobs);
  }

 private:
  bool chance(double p) { return std::uniform_real_distribution<>(0, 1)(random_) < p; }
  int pick(int count) { return std::uniform_int_distribution<>(0, count - 1)(random_); }

  // The controller may die anywhere inside; the next one takes over.
  void guarded(const std::function<void()>& action) {
    if (chance(0.02)) {
      bench_.point.steps = 0;
      bench_.point.at = pick(6);
    }
    try {
      action();
    } catch (const Crash&) {
      bench_.point.at = -1;
      bench_.restart();
    }
  }
  void pass() {
    guarded([&] {
      bench_.clock.advance(100ms);
      train();
      bench_.tick();
    });
  }

  void submit() {
    const auto name = "job-" + std::to_string(ids_.size());
    auto request = chance(0.5) ? recipe_request(name, 2) : command_request(name, 2);
    if (chance(0.2)) request.mutable_spec()->set_hold(true);
    if (!ids_.empty() && chance(0.2)) request.mutable_spec()->add_after("ended:" + std::to_string(*ids_.begin()));
    // A client sends the same request until it is acknowledged.
    for (int attempt = 0; attempt < 10; ++attempt) {
      bool accepted = false;
      guarded([&] {
        const auto outcome = bench_.controller().submit(request);
        if (!outcome.ok()) return;
        accepted = true;
        EXPECT_TRUE(ids_.insert(outcome.value().job_id()).second) << "one job's id twice";
      });
      if (accepted) return;
      set_full(false);
    }
    ADD_FAILURE() << "a submission is refused for ever";
  }

  void round_of_faults() {
    if (memory_ && chance(0.02)) set_full(true);
    if (full_ && chance(0.2)) set_full(false);
    if (ids_.empty()) return;
    const auto id = *std::next(ids_.begin(), pick(static_cast<int>(ids_.size())));
    if (chance(0.01)) bench_.controller().cancel(id, "ada");
    if (chance(0.01)) bench_.controller().requeue(id, "ada");
    if (chance(0.02)) bench_.controller().hold(id, "ada");
    if (chance(0.05)) bench_.controller().release(id, "ada");
    if (chance(0.02)) bench_.controller().set_time_limit(id, core::Millis(pick(20) * 1000), "ada");
    if (chance(0.02)) bench_.machine->launch_later = "the scheduler is down";
    if (chance(0.2)) bench_.machine->launch_later.clear();
    bench_.machine->answers = !chance(0.1);
    begin_some(0.05);
    for (auto& [key, attempt] : snapshot()) {
      for (core::RankNumber r = 0; r < attempt.ranks.size(); ++r) {
        if (!attempt.ranks[r].alive) continue;
        if (!attempt.stops.empty() && chance(0.3)) {
          bench_.executor().end(key, r, chance(0.5) ? core::ExitStatus{99, 0} : core::ExitStatus{0, 15});
        } else if (chance(0.003)) {
          bench_.executor().end(key, r, {chance(0.5) ? 1 : 97, 0});
        } else if (chance(0.001)) {
          bench_.executor().freeze(key, r);
        } else if (chance(0.002)) {
          bench_.executor().end_all(key, {0, 0});
        }
      }
    }
  }
  // The scheduler gives nodes, and says so again now and then; an attempt that was asked to leave the queue is gone.
  void begin_some(double chance_each) {
    if (!bench_.machine->queue) return;
    for (auto& [key, attempt] : snapshot()) {
      const auto job = bench_.controller().get(key.job);
      if (!job.ok() || job.value().attempts_size() != static_cast<int>(key.number)) continue;
      const auto state = job.value().attempts(job.value().attempts_size() - 1).state();
      if (state == "queued" && attempt.stops.empty() && job.value().held_by().empty() && chance(chance_each)) {
        bench_.executor().begin(key, {"n1", "n2"});
      }
    }
  }
  std::map<core::AttemptKey, Machine::Attempt> snapshot() {
    std::lock_guard lock(bench_.machine->mutex);
    return bench_.machine->attempts;
  }

  // Every rank of a recipe that is not frozen speaks, obeys and makes progress.
  void train() {
    if (++beats_ % 5 != 0) return;
    for (auto& [key, attempt] : snapshot()) {
      if (!attempt.request.env.contains("MUSTER_RUN_FILE")) continue;
      for (core::RankNumber r = 0; r < attempt.ranks.size(); ++r) {
        if (!attempt.ranks[r].alive || attempt.ranks[r].stopped) continue;
        if (bench_.machine->queue && !has_started(key)) continue;
        auto beat = Bench::beat(key, r, beats_);
        beat.add_metrics()->set_step(beats_);
        if (r == 0 && chance(0.05)) beat.add_checkpoints()->set_step(beats_);
        const auto answer = bench_.send(beat);
        ASSERT_TRUE(answer.ok()) << answer.refusal().text;
        if (answer.value().directive() == muster::v1::DIRECTIVE_STOP) bench_.executor().end(key, r, {94, 0});
      }
    }
  }

  bool has_started(const core::AttemptKey& key) {
    const auto job = bench_.controller().get(key.job);
    if (!job.ok()) return false;
    for (const auto& attempt : job.value().attempts()) {
      if (attempt.number() == key.number) return !attempt.started_at().empty();
    }
    return false;
  }
  void set_full(bool full) {
    full_ = full;
    bench_.memory().fail_writes(full ? std::optional(store::Error(store::Error::Kind::kFull, "full")) : std::nullopt);
  }

  void check() {
    for (const auto& [key, starts] : bench_.machine->starts) {
      ASSERT_EQ(starts, 1) << "job " << key.job << " attempt " << key.number;
    }
    std::set<core::JobId> running;
    for (const auto& [key, attempt] : snapshot()) {
      const bool alive =
          std::any_of(attempt.ranks.begin(), attempt.ranks.end(), [](const auto& rank) { return rank.alive; });
      if (alive && attempt.stops.empty()) {
        ASSERT_TRUE(running.insert(key.job).second) << "two attempts of job " << key.job << " at once";
      }
    }
    for (const auto id : ids_) {
      const auto job = bench_.controller().get(id);
      ASSERT_TRUE(job.ok()) << "job " << id << " is lost";
      ASSERT_GE(job.value().version(), versions_[id]) << "what was durable is not taken back";
      versions_[id] = job.value().version();
      ASSERT_LE(job.value().attempts_size(), 60);
    }
  }

  // No more faults: everything comes to an end.
  void settle(int jobs) {
    set_full(false);
    bench_.point.at = -1;
    bench_.machine->launch_later.clear();
    bench_.machine->answers = true;
    while (static_cast<int>(ids_.size()) < jobs) submit();
    bench_.point.at = -1;
    for (const auto id : ids_) bench_.controller().release(id, "ada");
    for (int round = 0; round < 8000 && open_jobs() > 0; ++round) {
      begin_some(1);
      for (auto& [key, attempt] : snapshot()) {
        const bool wanted = attempt.stops.empty();
        if (!wanted || round % 20 == 19) bench_.executor().end_all(key, {0, 0});
      }
      bench_.clock.advance(100ms);
      bench_.tick();
    }
    EXPECT_EQ(open_jobs(), 0) << "every job ends";
    bench_.pass(6s);
    EXPECT_TRUE(bench_.store().pending_actions().empty());
    for (const auto& [key, attempt] : snapshot()) {
      for (const auto& rank : attempt.ranks) {
        EXPECT_TRUE(!rank.alive || !attempt.stops.empty()) << "left running: job " << key.job << "." << key.number;
      }
    }
    EXPECT_EQ(bench_.controller().list({}).total(), jobs);
    check();
  }
  std::int64_t open_jobs() {
    muster::v1::ListRequest open;
    for (const char* state : {"pending", "queued", "running", "stopping", "waiting"}) open.add_states(state);
    return bench_.controller().list(open).total();
  }

  std::mt19937_64 random_;
  Bench bench_;
  const bool memory_;
  bool full_ = false;
  int beats_ = 0;
  std::set<core::JobId> ids_;
  std::map<core::JobId, std::int64_t> versions_;
};

class Sim : public ::testing::TestWithParam<int> {};

TEST_P(Sim, JobsUnderRandomFaultsEndAndNothingRunsTwice) {
  for (const auto kind : {StoreKind::kMemory, StoreKind::kSqlite}) {
    SCOPED_TRACE("seed " + std::to_string(GetParam()));
    Simulation(static_cast<std::uint64_t>(GetParam()), kind).run(12);
    if (HasFailure()) return;
  }
}
INSTANTIATE_TEST_SUITE_P(Seeds, Sim, ::testing::Range(1, 11));
INSTANTIATE_TEST_SUITE_P(MoreSeeds, Sim, ::testing::Range(11, 41));  // with -L long

}  // namespace
}  // namespace service::testing
