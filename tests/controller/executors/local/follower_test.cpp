#include "executors/local/follower.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "os/process_table.h"

namespace executors::local {

TEST(Leftovers, ALaterProcessWithTheSameIdIsNone) {
  const auto own = *os::read_stat(::getpid());
  EXPECT_FALSE(leftovers({os::boot_id(), "", -1, {{own.pid, own.start_time}}}).empty());
  EXPECT_TRUE(leftovers({os::boot_id(), "", -1, {{own.pid, own.start_time + 1}}}).empty());
  EXPECT_TRUE(leftovers({"another boot", "", -1, {{own.pid, own.start_time}}}).empty());
}

}  // namespace executors::local
