#include "os/process_table.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>

namespace os {

TEST(ProcessTable, KnowsThisProcess) {
  const auto all = all_processes();
  EXPECT_TRUE(std::ranges::any_of(all, [](const auto& each) { return each.pid == ::getpid() && !each.is_dead(); }));
  EXPECT_FALSE(boot_id().empty());
}

TEST(ProcessTable, ALaterProcessWithTheSameIdIsNotKilled) {
  auto stranger = *read_stat(::getpid());
  ++stranger.start_time;
  kill_exactly(stranger);
}

}  // namespace os
