// Goal: a program in a container counts the cores that its cgroups give it, not those of the machine.
// Method: made-up trees of both versions of cgroups.
#include "base/cgroups.h"

#include <gtest/gtest.h>
#include <sched.h>

#include "tests/temporary_folder.h"

namespace base {
namespace {

class TheCoreLimit : public ::testing::Test {
 protected:
  void write(const std::string& name, const std::string& text) const { test::write_file(folder_ / name, text + "\n"); }
  std::string limit(std::uint32_t cores = 16) const {
    const auto found = core_limit(cores, folder_ / "groups", folder_ / "mount");
    return std::to_string(found.cores) + " by " + found.of;
  }
  const test::TemporaryFolder folder_;
};

TEST_F(TheCoreLimit, IsTheCoresItMayRunOnWithoutAQuota) {
  EXPECT_EQ(limit(), "16 by this machine") << "there are no cgroups";
  EXPECT_EQ(limit(0), "1 by this machine");
  write("groups", "0::/slurm/job_7");
  EXPECT_EQ(limit(), "16 by this machine");
  write("mount/slurm/job_7/cpu.max", "max 100000");
  EXPECT_EQ(limit(), "16 by this machine");
  write("mount/slurm/job_7/cpu.max", "9900000 100000");
  EXPECT_EQ(limit(), "16 by this machine") << "more than there are";
}

TEST_F(TheCoreLimit, IsTheSmallestQuotaOfTheGroupsAboveIt) {
  write("groups", "0::/slurm/job_7/step_0");
  write("mount/slurm/job_7/step_0/cpu.max", "max 100000");
  write("mount/slurm/job_7/cpu.max", "800000 100000");
  EXPECT_EQ(limit(), "8 by the cgroup /slurm/job_7");
  write("mount/slurm/cpu.max", "200000 50000");
  EXPECT_EQ(limit(), "4 by the cgroup /slurm");
  write("mount/cpu.max", "250000 100000");
  EXPECT_EQ(limit(), "2 by the cgroup /") << "half a core is none";
  write("mount/slurm/job_7/step_0/cpu.max", "30000 100000");
  EXPECT_EQ(limit(), "1 by the cgroup /slurm/job_7/step_0");
  EXPECT_EQ(limit(1), "1 by this machine");
}

TEST_F(TheCoreLimit, IsReadFromTheFirstVersionToo) {
  write("groups", "4:cpu,cpuacct:/docker/5b1b\n3:cpuset:/docker/5b1b\n0::/init.scope");
  write("mount/cpu,cpuacct/docker/5b1b/cpu.cfs_quota_us", "-1");
  write("mount/cpu,cpuacct/docker/5b1b/cpu.cfs_period_us", "100000");
  EXPECT_EQ(limit(), "16 by this machine");
  write("mount/cpu,cpuacct/docker/cpu.cfs_quota_us", "300000");
  write("mount/cpu,cpuacct/docker/cpu.cfs_period_us", "100000");
  EXPECT_EQ(limit(), "3 by the cgroup /docker");
}

// A container has the folder of its own group mounted as the topmost one, and the name of the group is the machine's.
TEST_F(TheCoreLimit, IsFoundInAContainerThatCannotFollowItsGroupsName) {
  write("groups", "4:cpu,cpuacct:/docker/5b1b");
  write("mount/cpu/cpu.cfs_quota_us", "200000");
  write("mount/cpu/cpu.cfs_period_us", "100000");
  EXPECT_EQ(limit(), "2 by the cgroup /");
}

TEST_F(TheCoreLimit, IsNotMisledByWhatIsNoNumber) {
  write("groups", "nonsense\n0::/a");
  for (const auto* text : {"", "max", "200000", "200000 0", "-5 100000", "x 100000", "99999999999999999999 100000"}) {
    write("mount/a/cpu.max", text);
    EXPECT_EQ(limit(), "16 by this machine") << text;
  }
}

TEST_F(TheCoreLimit, FindsTheSecondVersionBesideTheFirst) {
  write("groups", "4:memory:/a\n0::/a");
  write("mount/unified/a/cpu.max", "200000 100000");
  EXPECT_EQ(limit(), "2 by the cgroup /a");
}

TEST(TheOwnCoreLimit, IsAtMostWhatThisProcessMayRunOn) {
  cpu_set_t set;
  if (::sched_getaffinity(0, sizeof set, &set) != 0) GTEST_SKIP() << "more than 1024 cores";
  EXPECT_GE(core_limit().cores, 1U);
  EXPECT_LE(core_limit().cores, static_cast<std::uint32_t>(CPU_COUNT(&set)));
}

}  // namespace
}  // namespace base
