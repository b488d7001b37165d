// Goal: a hang is suspected, told and looked at before it ends an attempt, and what may be healthy goes on.
// Method: the real controller without threads; ranks and clock of our own, logs and checkpoints in real folders.
#include <gmock/gmock.h>

#include <fstream>

#include "tests/controller/service/bench.h"

namespace service::testing {
namespace {

using ::testing::HasSubstr;
using ::testing::StartsWith;

class Hangs : public ::testing::Test {
 protected:
  /// A program that reports its steps has made a hundred of them.
  core::JobId trained(const std::string& request = "a", const muster::v1::ReportSources& report = {}) {
    auto wanted = command_request(request);
    wanted.mutable_spec()->set_working_folder((bench.folder() / "work").string());
    *wanted.mutable_spec()->mutable_report() = report;
    const auto id = bench.submit(wanted);
    bench.train(id);
    return id;
  }
  void stand(core::JobId id, core::Millis time) { bench.stand(id, time); }
  void write(core::JobId id, const std::string& name) { write(bench.folder() / "jobs" / std::to_string(id) / name); }
  static void write(const std::filesystem::path& file) {
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::app) << "10 %\n";
  }

  Bench bench;
};

TEST_F(Hangs, AreSuspectedShownAndTakenBack) {
  const auto id = trained();
  stand(id, 7s);
  ASSERT_EQ(bench.why(id).notes_size(), 1);
  EXPECT_THAT(bench.why(id).notes(0),
              StartsWith("rank 0: no progress for 7.4 s in section step; usual is at most 10 s, "));
  stand(id, 8s);
  EXPECT_EQ(bench.why(id).notes_size(), 0) << "the reason says it";
  const auto job = bench.job(id);
  EXPECT_EQ(job.status(), "running, suspected");
  EXPECT_THAT(job.reason(), StartsWith("attempt 1: rank 0 has made no progress since "));
  EXPECT_THAT(bench.why(id).action(), HasSubstr("liveness.hung_after"));
  EXPECT_THAT(bench.why(id).action(), HasSubstr("section"));
  EXPECT_EQ(bench.count_events(id, "attempt_suspected"), 1);
  bench.heartbeat({id, 1}, 0, 101);
  bench.tick();
  EXPECT_EQ(bench.job(id).status(), "running");
  EXPECT_EQ(bench.job(id).reason(), "attempt 1: running");
  EXPECT_EQ(bench.count_events(id, "suspicion_over"), 1);
}

TEST_F(Hangs, EndWhenNothingHasComeOutForTenMinutes) {
  const auto id = trained();
  stand(id, 9min + 50s);
  EXPECT_EQ(bench.state(id), "running");
  stand(id, 30s);
  EXPECT_EQ(bench.attempt(id, 1).cause(), "rank_hung");
  EXPECT_THAT(bench.attempt(id, 1).reason(), StartsWith("rank 0 made no progress for 10 min"));
}

TEST_F(Hangs, DoNotEndWhatWritesItsLogOrItsCheckpoint) {
  for (const char* name : {"attempt-1/logs/rank-0.log", "checkpoints/step-7/model.pt", "checkpoints/.step-8.tmp"}) {
    const auto id = trained(name);
    for (int i = 0; i < 3; ++i) {
      stand(id, 5min);
      ASSERT_EQ(bench.state(id), "running") << name << " " << i;
      write(id, name);
    }
    stand(id, 10min + 10s);
    EXPECT_EQ(bench.attempt(id, 1).cause(), "rank_hung") << name;
  }
}

TEST_F(Hangs, DoNotEndWhatWritesWhereReportLooks) {
  muster::v1::ReportSources report;
  report.set_tensorboard("runs");
  report.set_checkpoints("saves/step-*");
  for (const char* name : {"runs/events.out.tfevents.1", "saves/tmp-step-8/model.pt"}) {
    const auto id = trained(name, report);
    for (int i = 0; i < 3; ++i) {
      stand(id, 5min);
      ASSERT_EQ(bench.state(id), "running") << name << " " << i;
      write(bench.folder() / "work" / name);
    }
    stand(id, 10min + 10s);
    EXPECT_EQ(bench.attempt(id, 1).cause(), "rank_hung") << name;
  }
}

}  // namespace
}  // namespace service::testing
