#include "cli/follow.h"

#include <gtest/gtest.h>

#include "tests/cli/fake_controller.h"

namespace test {
namespace {

using namespace std::chrono_literals;

muster::v1::Job at_step(std::int64_t step, std::uint32_t attempt = 1) {
  muster::v1::Job job;
  job.set_state("running");
  job.set_step(step);
  job.set_steps_total(100);
  job.add_attempts()->set_number(attempt);
  return job;
}

TEST(TimeLeft, IsWhatTheStepsSeenLatelySay) {
  cli::TimeLeft left;
  const cli::TimeLeft::Time begin{};
  EXPECT_EQ(left.left(), std::nullopt);
  left.see(at_step(0), begin);
  EXPECT_EQ(left.left(), std::nullopt) << "nothing has moved";
  left.see(at_step(10), begin + 5s);
  EXPECT_EQ(left.left(), 45s);
  left.see(at_step(10), begin + 60s);
  EXPECT_EQ(left.left(), 45s) << "a look at the same step is no news";
  left.see(at_step(20), begin + 300s);
  left.see(at_step(30), begin + 310s);
  EXPECT_EQ(left.left(), 70s) << "what was seen minutes ago does not count";
  left.see(at_step(100), begin + 311s);
  EXPECT_EQ(left.left(), std::nullopt) << "it is there";
}

TEST(TimeLeft, AResumedAttemptBeginsAnew) {
  cli::TimeLeft left;
  const cli::TimeLeft::Time begin{};
  left.see(at_step(40), begin);
  left.see(at_step(50), begin + 10s);
  EXPECT_EQ(left.left(), 50s);
  left.see(at_step(42, 2), begin + 20s);
  EXPECT_EQ(left.left(), std::nullopt);
  left.see(at_step(52, 2), begin + 40s);
  EXPECT_EQ(left.left(), 96s);
  auto waiting = at_step(52, 2);
  waiting.set_state("waiting");
  left.see(waiting, begin + 41s);
  EXPECT_EQ(left.left(), std::nullopt);
}

TEST(TimeLeft, BeforeTwoStepsWereSeenRanksSayHowLongTheirsTake) {
  cli::TimeLeft left;
  auto job = at_step(90);
  job.add_ranks()->set_step_ms(80);
  job.add_ranks()->set_step_ms(100);
  left.see(job, {});
  EXPECT_EQ(left.left(), 1s);
  job.set_step(job.steps_total());
  left.see(job, {});
  EXPECT_EQ(left.left(), std::nullopt) << "it is done";
  job.set_step(90);
  job.set_steps_total(0);
  left.see(job, {});
  EXPECT_EQ(left.left(), std::nullopt) << "nobody knows its end";
}

TEST(Follow, TheEndIsToldInNumbersToo) {
  auto job = sample_job(7, "succeeded");
  job.set_ended_at("2026-11-20T19:49:23.000Z");
  job.set_checkpoint_folder("/data/jobs/7/checkpoints");
  job.set_step(150);
  EXPECT_EQ(cli::summary_text(job),
            "2 attempts, step 150/150, loss 2.871, took 27s; newest checkpoint of step 40 in /data/jobs/7/checkpoints");
  auto& series = *job.add_series();
  series.set_name("validation/loss");
  series.set_held_out(true);
  series.set_value(2.9);
  EXPECT_NE(cli::summary_text(job).find("loss 2.871, validation loss 2.9, took"), std::string::npos);
  muster::v1::Job command;
  command.add_attempts();
  EXPECT_EQ(cli::summary_text(command), "1 attempt");
}

muster::v1::Job long_lined() {
  auto job = at_step(25);
  job.set_id(7);
  job.set_loss(2.5);
  job.set_tokens_per_s(18200);
  return job;
}

TEST(BarLine, HasABarAndWhatIsKnownWhereThereIsRoom) {
  const cli::TimeLeft left;
  const auto line = cli::bar_line(long_lined(), left, 200);
  EXPECT_EQ(line, "[######..................] job 7 running, attempt 1, step 25/100, loss 2.5, 18200 tokens/s");
}

TEST(BarLine, LosesItsBarFirstAndFitsEveryTerminal) {
  const cli::TimeLeft left;
  const auto job = long_lined();
  const auto whole = cli::bar_line(job, left, 200).size();
  const auto without_bar = cli::bar_line(job, left, whole - 1);
  EXPECT_EQ(without_bar, "job 7 running, attempt 1, step 25/100, loss 2.5, 18200 tokens/s");
  EXPECT_EQ(cli::bar_line(job, left, without_bar.size() - 1), "[######..................] step 25/100, loss 2.5");
  EXPECT_EQ(cli::bar_line(job, left, 30), "step 25/100, loss 2.5");
  for (std::size_t width = 10; width <= whole; ++width) EXPECT_LE(cli::bar_line(job, left, width).size(), width);
}

}  // namespace
}  // namespace test
