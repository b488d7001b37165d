#include "base/cgroups.h"

#include <gtest/gtest.h>

#include "tests/temporary_folder.h"

namespace base {
namespace {

class TheMemoryLimit : public ::testing::Test {
 protected:
  TheMemoryLimit() {
    write("meminfo", "MemTotal:       16384 kB\nMemFree: 12 kB\n");
    write("groups", "0::/slurm/job_7\n");
  }
  void write(const std::string& name, const std::string& text) const { test::write_file(folder_ / name, text); }
  MemoryLimit limit() const { return memory_limit(folder_ / "groups", folder_ / "mount", folder_ / "meminfo"); }
  const test::TemporaryFolder folder_;
};

TEST_F(TheMemoryLimit, IsTheMachinesMemoryWithoutCgroups) {
  EXPECT_EQ(limit().bytes, 16 << 20);
  EXPECT_EQ(limit().of, "this machine");
  write("mount/slurm/job_7/memory.max", "max\n");
  EXPECT_EQ(limit().bytes, 16 << 20);
}

TEST_F(TheMemoryLimit, IsTheSmallestOfTheCgroupsAboveTheProcess) {
  write("mount/slurm/job_7/memory.max", "9437184\n");
  EXPECT_EQ(limit().bytes, 9437184);
  EXPECT_EQ(limit().of, "the cgroup /slurm/job_7");
  write("mount/slurm/memory.max", "8388608\n");
  EXPECT_EQ(limit().bytes, 8388608);
  EXPECT_EQ(limit().of, "the cgroup /slurm");
  write("mount/memory.max", "1048576\n");
  EXPECT_EQ(limit().of, "the cgroup /");
}

TEST_F(TheMemoryLimit, IsReadFromTheFirstVersionOfCgroupsToo) {
  write("groups", "4:memory:/slurm/job_7\n1:name=systemd:/\n");
  write("mount/memory/slurm/job_7/memory.limit_in_bytes", "7340032\n");
  EXPECT_EQ(limit().bytes, 7340032);
  write("mount/memory/slurm/job_7/memory.limit_in_bytes", "9223372036854771712\n");  // no limit
  EXPECT_EQ(limit().of, "this machine");
}

TEST_F(TheMemoryLimit, IsUnknownWhereNothingCanBeRead) {
  std::filesystem::remove(folder_ / "meminfo");
  EXPECT_EQ(limit().bytes, 0);
}

TEST(TheOwnMemoryLimit, IsKnown) {
  EXPECT_GT(memory_limit().bytes, 64 << 20);
}

}  // namespace
}  // namespace base
