#include "base/cgroups.h"

#include <gtest/gtest.h>

#include <fstream>

namespace base {

class OutOfMemory : public testing::Test {
 protected:
  void kernel_kills(int count) { std::ofstream(file_) << "pgfault 12\noom_kill " << count << "\nswap 3\n"; }
  const std::filesystem::path file_ =
      testing::TempDir() + "/oom." + std::to_string(::testing::UnitTest::GetInstance()->random_seed()) + "." +
      std::to_string(static_cast<unsigned long>(std::chrono::steady_clock::now().time_since_epoch().count()));
  OomWatch::Time now_{};
  void TearDown() override { std::filesystem::remove(file_); }
};

TEST_F(OutOfMemory, AKillOfTheKernelsIsSeen) {
  kernel_kills(3);
  OomWatch watch(file_, now_);
  EXPECT_FALSE(watch.killed_lately(now_));
  kernel_kills(4);
  EXPECT_TRUE(watch.killed_lately(now_));
  EXPECT_TRUE(watch.killed_lately(now_)) << "it may have killed several";
}

TEST_F(OutOfMemory, AProcessThatTakesLongToDieIsStillCounted) {
  kernel_kills(0);
  OomWatch watch(file_, now_);
  kernel_kills(1);
  watch.tick(now_ += OomWatch::kWindow);
  EXPECT_TRUE(watch.killed_lately(now_ + OomWatch::kWindow / 2));
}

TEST_F(OutOfMemory, AKillOfLongAgoIsNotBlamed) {
  kernel_kills(0);
  OomWatch watch(file_, now_);
  kernel_kills(1);
  for (int window = 0; window < 3; ++window) watch.tick(now_ += OomWatch::kWindow);
  EXPECT_FALSE(watch.killed_lately(now_));
}

// A kill in another job's cgroup is none of ours.
TEST_F(OutOfMemory, TheOwnCgroupsCountIsReadWhereThereIsOne) {
  const std::filesystem::path root = file_.string() + ".mount", groups = file_;
  const auto counter_of = [&](const std::string& text) {
    std::ofstream(groups) << text;
    return OomWatch::best_counter_file(groups, root);
  };
  EXPECT_EQ(counter_of("4:memory:/slurm/job_7\n0::/slurm/job_7\n"), "/proc/vmstat") << "none can be read";
  std::filesystem::create_directories(root / "slurm/job_7");
  std::ofstream(root / "slurm/job_7/memory.events") << "oom 1\noom_kill 1\n";
  EXPECT_EQ(counter_of("1:name=systemd:/\n0::/slurm/job_7\n"), root / "slurm/job_7/memory.events");
  std::filesystem::create_directories(root / "memory/slurm/job_7");
  const auto first = root / "memory/slurm/job_7/memory.oom_control";
  std::ofstream(first) << "oom_kill_disable 0\nunder_oom 0\noom_kill 3\n";
  EXPECT_EQ(counter_of("9:name=systemd:/\n4:memory:/slurm/job_7\n0::/\n"), first);
  OomWatch watch(first, now_);
  std::ofstream(first) << "oom_kill_disable 0\nunder_oom 0\noom_kill 4\n";
  EXPECT_TRUE(watch.killed_lately(now_));
  std::filesystem::remove_all(root);
}

TEST_F(OutOfMemory, SlurmsCgroupOfATaskIsKnownByItsPath) {
  for (const char* tasks : {"/sys/fs/cgroup/memory/slurm_n1/uid_7/job_7/step_0/task_1/memory.oom_control",
                            "/sys/fs/cgroup/system.slice/slurmstepd.scope/job_7/step_0/user/task_1/memory.events"}) {
    EXPECT_TRUE(OomWatch::is_slurm_tasks(tasks)) << tasks;
  }
  for (const char* others : {"/proc/vmstat", "/sys/fs/cgroup/memory/slurm_n1/uid_7/job_7/step_batch/memory.oom_control",
                             "/sys/fs/cgroup/user.slice/task_1/memory.events"}) {
    EXPECT_FALSE(OomWatch::is_slurm_tasks(others)) << others;
  }
}

TEST_F(OutOfMemory, WithoutACounterNothingIsClaimed) {
  OomWatch watch(file_, now_);
  EXPECT_FALSE(watch.killed_lately(now_));
}

}  // namespace base
