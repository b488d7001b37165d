// Goal: which node failed its health check is read from the log that Slurm wrote, of an attempt alone and of an array's
// element alike.
// Method: the check's own shell text runs here, and writes the logs.
#include "controller/executors/slurm/attempt_files.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>

#include "base/durable_file.h"
#include "controller/executors/slurm/slurm_submission.h"
#include "tests/controller/service/bench.h"

namespace executors::on_slurm {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

/// Runs the check as the batch script does, on `node`, and appends what it says to `log`; its exit code.
int run_check(const std::filesystem::path& folder, const std::string& check, const std::string& node,
              const std::filesystem::path& log) {
  base::write_file_durably(folder / "check.sh", telling_check(check));
  const auto command =
      "SLURMD_NODENAME='" + node + "' bash '" + (folder / "check.sh").string() + "' >> '" + log.string() + "' 2>&1";
  return WEXITSTATUS(std::system(command.c_str()));
}

/// "n3: its health check failed with exit code 4"
std::vector<std::string> lost(const std::vector<core::EventBody>& facts) {
  std::vector<std::string> texts;
  for (const auto& fact : facts) {
    const auto& node = std::get<core::NodeLost>(fact);
    EXPECT_EQ(node.attempt, 2U);
    texts.push_back(node.node + ": " + node.why);
  }
  return texts;
}

TEST(HealthCheck, OfAnAttemptAloneIsReadFromItsOwnLog) {
  const service::testing::TempFolder folder;
  const auto log = folder.path() / "slurm.log";
  EXPECT_EQ(run_check(folder.path(), "true", "n1", log), 0);
  EXPECT_THAT(unfit_nodes_of(slurm_log_of(folder.path()), 2), IsEmpty());
  EXPECT_EQ(run_check(folder.path(), "echo broken; (exit 4)", "n3", log), 4) << "the check's own code";
  EXPECT_EQ(run_check(folder.path(), "exit 1", "n2", log), 1);
  EXPECT_EQ(run_check(folder.path(), "exit 1", "n3", log), 1);
  EXPECT_THAT(
      lost(unfit_nodes_of(slurm_log_of(folder.path()), 2)),
      ElementsAre("n3: its health check failed with exit code 4", "n2: its health check failed with exit code 1"))
      << "each node once";
}

TEST(HealthCheck, OfAnArraysElementIsReadFromTheElementsLogAlone) {
  const service::testing::TempFolder folder;
  const auto set = folder.path() / "set-7.1", attempt = folder.path() / "attempt-2";
  std::filesystem::create_directories(set);
  std::filesystem::create_directories(attempt);
  SubmissionRecord record;
  record.set_folder = set.string();
  record.index = 11;
  write_record(attempt, record);
  run_check(folder.path(), "exit 5", "n1", set / "slurm-1.log");
  run_check(folder.path(), "exit 6", "n9", attempt / "slurm.log");
  EXPECT_THAT(unfit_nodes_of(slurm_log_of(attempt), 2), IsEmpty()) << "those are others'";
  run_check(folder.path(), "exit 7", "n4", set / "slurm-11.log");
  EXPECT_THAT(lost(unfit_nodes_of(slurm_log_of(attempt), 2)),
              ElementsAre("n4: its health check failed with exit code 7"));
}

TEST(HealthCheck, IsFoundBehindAnyAmountOfSetupLines) {
  for (const std::size_t mebibytes : {0, 1, 2, 5}) {
    const service::testing::TempFolder folder;
    const auto log = folder.path() / "slurm.log";
    run_check(folder.path(), "exit 1", "n1", log);
    {
      std::ofstream chatter(log, std::ios::app);
      for (std::size_t line = 0; line < mebibytes << 15; ++line) chatter << "a line of thirty-two characters\n";
    }
    run_check(folder.path(), "exit 1", "n25", log);
    EXPECT_THAT(
        lost(unfit_nodes_of(slurm_log_of(folder.path()), 2)),
        ElementsAre("n1: its health check failed with exit code 1", "n25: its health check failed with exit code 1"))
        << mebibytes;
  }
}

TEST(HealthCheck, OfTheJobFileConcernsItsJobAlone) {
  const service::testing::TempFolder folder;
  const auto log = folder.path() / "slurm.log";
  EXPECT_EQ(run_check(folder.path(), own_check("exit 7"), "n1", log), 7);
  EXPECT_EQ(run_check(folder.path(), "exit 7", "n2", log), 7);
  const auto facts = unfit_nodes_of(slurm_log_of(folder.path()), 2);
  ASSERT_EQ(facts.size(), 2U);
  EXPECT_TRUE(std::get<core::NodeLost>(facts[0]).only_this_job);
  EXPECT_FALSE(std::get<core::NodeLost>(facts[1]).only_this_job);
}

// The middle of a long log is not read, and begins where a name may stand.
TEST(HealthCheck, NoHalfANameIsTakenForANode) {
  const service::testing::TempFolder folder;
  {
    std::ofstream log(folder.path() / "slurm.log");
    log << std::string((1 << 20) - kUnfitMark.size() - 4, 'x') << "\n" << kUnfitMark << "n12345 with exit code 1\n";
    log << std::string(3 << 20, '\n');
  }
  EXPECT_THAT(unfit_nodes_of(slurm_log_of(folder.path()), 2), IsEmpty());
}

TEST(HealthCheck, ALogThatSaysNothingOfIt) {
  const service::testing::TempFolder folder;
  EXPECT_THAT(unfit_nodes_of(slurm_log_of(folder.path()), 2), IsEmpty()) << "no log at all";
  std::filesystem::create_directory(folder.path() / "slurm.log");
  EXPECT_THAT(unfit_nodes_of(slurm_log_of(folder.path()), 2), IsEmpty()) << "one that can't be read";
  EXPECT_THAT(unfit_nodes("muster: the health check failed on \n", 2), IsEmpty()) << "no node";
}

}  // namespace
}  // namespace executors::on_slurm
