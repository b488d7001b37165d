#include "base/host_name.h"

#include <gtest/gtest.h>
#include <stdlib.h>
#include <sys/utsname.h>

namespace base {
namespace {

TEST(HostName, IsTheKernelsName) {
  utsname kernel{};
  ASSERT_EQ(::uname(&kernel), 0);
  EXPECT_EQ(host_name(), kernel.nodename);
}

TEST(NodeName, IsSlurmsNameOnANodeOfSlurm) {
  ::setenv("SLURMD_NODENAME", "n7", 1);
  EXPECT_EQ(node_name(), "n7");
  ::setenv("SLURMD_NODENAME", "", 1);
  EXPECT_EQ(node_name(), host_name());
  ::unsetenv("SLURMD_NODENAME");
  EXPECT_EQ(node_name(), host_name());
}

}  // namespace
}  // namespace base
