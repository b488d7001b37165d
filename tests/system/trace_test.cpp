// Goal: a person asks a training that runs for a trace of a step, and gets the files of all its ranks or the reason why
// not, whatever happens to musterd and to the ranks meanwhile.
// Method: the real programs; two ranks on this machine.
#include <gmock/gmock.h>
#include <signal.h>

#include <set>

#include "tests/system/world.h"

namespace test {
namespace {

using ::testing::AllOf;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::StartsWith;

constexpr int kManySteps = 20'000;

/// The names of the spans in a file, which must be those of this rank.
std::set<std::string> spans_of(const std::string& file, int rank) {
  std::set<std::string> spans;
  const auto trace = Json::parse(read_file(file));
  for (const auto& event : trace.at("traceEvents")) {
    EXPECT_EQ(event.at("pid"), rank);
    spans.insert(event.at("name"));
  }
  return spans;
}

void expect_step(const std::string& file, int rank, int step) {
  EXPECT_THAT(file, HasSubstr("/trace/step-" + std::to_string(step) + ".rank" + std::to_string(rank) + ".json"));
  EXPECT_THAT(spans_of(file, rank), AllOf(Contains("step " + std::to_string(step)), Contains(StartsWith("all-gather ")),
                                          Contains(StartsWith("reduce-scatter ")), Contains("optimizer step")));
}

class TraceOnRequest : public ::testing::Test {
 protected:
  void SetUp() override {
    world_.start_daemon();
    job_ = world_.submit(training_job({.steps = kManySteps, .every_steps = 50, .step_delay_ms = 50}));
    world_.until_step(job_, 3);
  }
  std::int64_t step_now() { return world_.show(job_).at("step"); }
  /// `muster trace` of a step that comes some seconds later, in the background. Waits until the ranks have agreed.
  std::unique_ptr<Process> trace_later(int seconds) {
    const auto at = std::to_string(step_now() + seconds * 20);
    auto process =
        std::make_unique<Process>(std::vector<std::string>{World::program("muster"), "trace", job_, "--at", at},
                                  world_.client_environment(), out_, err_);
    EXPECT_TRUE(
        eventually([&] { return read_file(err_).find("its 2 ranks record step " + at) != std::string::npos; }, 30s))
        << read_file(err_);
    return process;
  }

  World world_;
  std::string job_;
  const std::filesystem::path out_ = world_.folder() / "trace.out", err_ = world_.folder() / "trace.err";
};

TEST_F(TraceOnRequest, GivesTheFilesOfAllRanksOfTheSameSteps) {
  const auto trace = world_.json({"trace", job_, "--steps", "2"});
  const int first = trace.at("first_step");
  EXPECT_GT(first, 3);
  ASSERT_EQ(trace.at("files").size(), 4U) << trace;
  for (int file = 0; file < 4; ++file) {
    expect_step(trace.at("files")[static_cast<std::size_t>(file)], file / 2, first + file % 2);
  }
  const auto again = world_.cli({"trace", job_});
  EXPECT_EQ(again.exit, 0) << again.err;
  EXPECT_EQ(std::ranges::count(again.out, '\n'), 2) << again.out;
  EXPECT_THAT(again.err, HasSubstr("muster: open them in https://ui.perfetto.dev or chrome://tracing\n"));
  world_.until_step(job_, first + 4);
  EXPECT_EQ(world_.show(job_).at("attempts").size(), 1U);
  EXPECT_THAT(world_.cli({"logs", job_, "--rank", "1"}).out, HasSubstr("[rank 1] recorded 2 of 2 steps, from step "));
}

TEST_F(TraceOnRequest, OutlivesARestartOfTheController) {
  const auto trace = trace_later(8);
  world_.kill_daemon();
  world_.start_daemon();
  EXPECT_EQ(trace->wait(60s), 0) << read_file(err_);
  EXPECT_EQ(std::ranges::count(read_file(out_), '\n'), 2);
  EXPECT_THAT(read_file(err_), AllOf(HasSubstr("lost contact"), HasSubstr("the controller is back")));
}

TEST_F(TraceOnRequest, TellsOfARankThatDiesBeforeTheStep) {
  const auto trace = trace_later(60);
  const auto other = world_.cli({"trace", job_});
  EXPECT_EQ(other.exit, 2);
  EXPECT_THAT(other.err, AllOf(HasSubstr("job " + job_ + " records step "), HasSubstr("already; ask again when")));
  signal_rank(world_.show(job_), 1, SIGKILL);
  EXPECT_EQ(trace->wait(60s), 1);
  EXPECT_THAT(read_file(out_), IsEmpty());
  EXPECT_THAT(read_file(err_), AllOf(HasSubstr("attempt 1 has ended before its ranks had recorded all steps"),
                                     HasSubstr("ask again when the next attempt trains")));
  world_.until(job_, [](const Json& view) {
    return view.at("attempts").size() == 2 && view.at("attempts")[1].at("state") == "running";
  });
  const auto next = world_.json({"trace", job_});
  EXPECT_EQ(next.at("attempt"), 2) << next;
  EXPECT_EQ(next.at("files").size(), 2U) << next;
}

TEST_F(TraceOnRequest, SaysThatThereIsNoPlaceForTheFiles) {
  write_file(world_.checkpoints(job_) / "trace", "a file in place of the folder");
  const auto trace = world_.cli({"trace", job_});
  EXPECT_EQ(trace.exit, 1);
  EXPECT_THAT(trace.out, IsEmpty());
  EXPECT_THAT(trace.err, AllOf(HasSubstr(", rank 0: no trace in " + world_.checkpoints(job_).string() + "/trace/step-"),
                               HasSubstr(", rank 1: no trace in ")));
  const auto step = step_now();
  world_.until_step(job_, static_cast<int>(step) + 3);
}

TEST(TraceOfOthers, IsRefusedWithTheReason) {
  World world;
  world.start_daemon();
  const auto script = world.submit(shell_job("sleep 600"));
  world.until_state(script, "running");
  const auto program = world.cli({"trace", script});
  EXPECT_EQ(program.exit, 2);
  EXPECT_THAT(program.err, HasSubstr("runs a program of its own, whose steps muster cannot record"));
  const auto held = world.submit(training_job({.steps = 5}), {"--hold"});
  EXPECT_THAT(world.cli({"trace", held}).err, HasSubstr("job " + held + " is held, so no rank can record a step"));
  EXPECT_EQ(world.cli({"trace", "99"}).exit, 3);
}

}  // namespace
}  // namespace test
