#include "base/process_table.h"

#include <gtest/gtest.h>
#include <unistd.h>

namespace base {

TEST(ProcessStat, ReadsProgramNamesThatLookLikeFields) {
  const auto stat = parse_stat("42 (a) R (b c) T 7 8 9 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 123456 999 1\n");
  EXPECT_EQ(stat.pid, 42);
  EXPECT_TRUE(stat.is_stopped());
  EXPECT_EQ(stat.parent, 7);
  EXPECT_EQ(stat.group, 8);
  EXPECT_EQ(stat.session, 9);
  EXPECT_EQ(stat.start_time, 123456u);
}

TEST(ProcessStat, ATracedProcessIsNotAStoppedOne) {
  EXPECT_FALSE(parse_stat("42 (a) t 7 8 9 0 -1 4 1 2 3 4 5 6 7 8 20 0 1 0 123456 999 1\n").is_stopped());
}

TEST(ProcessStat, IsReadOfAProcessThatIsThere) {
  const auto stat = read_stat(::getpid());
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->pid, ::getpid());
  EXPECT_EQ(stat->parent, ::getppid());
  EXPECT_EQ(stat->session, ::getsid(0));
  EXPECT_FALSE(stat->is_dead());
  EXPECT_FALSE(read_stat(1 << 30)) << "no such process";
}

}  // namespace base
