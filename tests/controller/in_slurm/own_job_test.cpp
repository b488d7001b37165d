// Goal: the Slurm job of musterd asks for little, comes one at a time, and is told from all other jobs.
#include "controller/in_slurm/own_job.h"

#include <gmock/gmock.h>

namespace in_slurm {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;
using namespace std::chrono_literals;

std::string text_of(const slurm::Options& asked, std::optional<std::chrono::seconds> limit = 24h) {
  const auto script = script_of("/home/ada/data", {"/opt/muster d", "--in-slurm"}, "/home/ada/100%.log", asked, limit);
  EXPECT_THAT(slurm::problems(script), ::testing::IsEmpty());
  return slurm::render(script);
}

slurm::ListedJob job(std::uint64_t id, slurm::JobState state, const std::string& comment = comment_of("/data")) {
  slurm::ListedJob listed;
  listed.id = {id, {}};
  listed.state.state = state;
  listed.comment = comment;
  return listed;
}

TEST(OwnJob, AsksForLittleAndRunsOneAtATime) {
  const auto text = text_of({});
  for (const char* line :
       {"#SBATCH --dependency=singleton\n", "#SBATCH --ntasks=1\n", "#SBATCH --cpus-per-task=1\n", "#SBATCH --mem=1G\n",
        "#SBATCH --no-requeue\n", "#SBATCH --signal=B:USR1@120\n", "#SBATCH --open-mode=append\n",
        "#SBATCH --output=/home/ada/100%%.log\n", "#SBATCH --comment=musterd:/home/ada/data\n"}) {
    EXPECT_THAT(text, HasSubstr(line));
  }
  EXPECT_THAT(text, HasSubstr("'/opt/muster d' --in-slurm &\n")) << "the script itself runs it, and forwards USR1";
}

TEST(OwnJob, TakesWhatAPersonAsksOfSlurm) {
  const auto text =
      text_of({{"partition", "long"}, {"mem-per-cpu", "2G"}, {"exclusive", std::nullopt}, {"dependency", "afterok:1"}});
  EXPECT_THAT(text, HasSubstr("#SBATCH --partition=long\n"));
  EXPECT_THAT(text, HasSubstr("#SBATCH --mem-per-cpu=2G\n"));
  EXPECT_THAT(text, HasSubstr("#SBATCH --exclusive\n"));
  EXPECT_THAT(text, Not(HasSubstr("--mem="))) << "sbatch takes one of the two";
  EXPECT_THAT(text, HasSubstr("#SBATCH --dependency=singleton\n")) << "two of them at once would share a data folder";
}

TEST(OwnJob, IsWarnedBeforeItsLimitHoweverShort) {
  EXPECT_THAT(text_of({}, std::nullopt), HasSubstr("B:USR1@120\n"));
  EXPECT_THAT(text_of({}, 2min), HasSubstr("B:USR1@30\n"));
  EXPECT_THAT(text_of({}, 1s), HasSubstr("B:USR1@1\n"));
}

TEST(OwnJob, AsksForADayWhereThePartitionHasNoDefault) {
  std::vector<slurm::Partition> partitions(3);
  partitions[0].name = "main", partitions[0].is_default = true;
  partitions[1].name = "short", partitions[1].max_time = 90min;
  partitions[2].name = "given", partitions[2].default_time = 10min;
  EXPECT_EQ(time_to_ask(partitions, {}), 1440min);
  EXPECT_EQ(time_to_ask(partitions, {{"partition", "short"}}), 90min);
  EXPECT_EQ(time_to_ask(partitions, {{"partition", "given"}}), std::nullopt);
  EXPECT_EQ(time_to_ask(partitions, {{"partition", "short,given"}}), 1440min);
  EXPECT_EQ(time_to_ask(partitions, {{"time", "5"}}), std::nullopt);
}

TEST(OwnJob, IsToldFromOthersByItsComment) {
  using enum slurm::JobState;
  const auto found = standing_of({job(9, kPending), job(7, kRunning), job(8, kPending), job(3, kTimeout),
                                  job(5, kNodeFail), job(6, kRunning, "somebody's"), job(4, kUnknown)},
                                 comment_of("/data"));
  ASSERT_TRUE(found.running);
  EXPECT_EQ(found.running->id.job, 7U);
  ASSERT_EQ(found.queued.size(), 2U);
  EXPECT_EQ(found.queued.front().id.job, 8U);
  EXPECT_EQ(found.ended->id.job, 5U);
  EXPECT_FALSE(standing_of({job(5, kCancelled)}, comment_of("/data")).is_any_left());
  EXPECT_EQ(standing_of({job(5, kCompleting), job(6, kRunning)}, comment_of("/data")).running->id.job, 6U);
}

}  // namespace
}  // namespace in_slurm
