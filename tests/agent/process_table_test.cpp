#include "agent/supervisor/process_table.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

namespace runtime::local {

TEST(ProcessTable, KnowsThisProcess) {
  const auto all = all_processes();
  EXPECT_TRUE(std::ranges::any_of(all, [](const auto& each) { return each.pid == ::getpid() && !each.is_dead(); }));
  EXPECT_FALSE(boot_id().empty());
}

TEST(ProcessTable, ALaterProcessWithTheSameIdIsNotKilled) {
  auto stranger = *os::read_stat(::getpid());
  ++stranger.start_time;
  kill_exactly(stranger);
  EXPECT_TRUE(leftovers({boot_id(), "", -1, {{stranger.pid, stranger.start_time}}}).empty());
  EXPECT_TRUE(leftovers({"another boot", "", -1, {{stranger.pid, stranger.start_time - 1}}}).empty());
}

}  // namespace runtime::local
