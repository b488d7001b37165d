#include "tests/controller/executors/local/world.h"

// Goal: what ranks use is told by the agent that stays with them, to each controller.
// Method: real processes; shell scripts as ranks.
namespace test {

class RankUse : public World {};

TEST_F(RankUse, IsToldToTheNextControllerTooAndWrittenNowhere) {
  must_launch(1, "[ $RANK = 0 ] && while :; do :; done; sleep 600", 2);
  const auto told_apart = [&] {
    const auto used = desk_.used({1, 1});
    if (used.size() != 2 || !used.at(0).has_cores() || !used.at(1).has_cores()) return false;
    return used.at(0).cores() > 0.06 && used.at(1).cores() < 0.03;
  };
  ASSERT_TRUE(eventually(told_apart, 60s));
  EXPECT_GT(desk_.used({1, 1}).at(1).memory_bytes(), 100'000);
  EXPECT_EQ(read_file(folder(1) / "status.jsonl").find("used"), std::string::npos);
  executor_->shutdown();
  desk_.forget_use();
  restart_controller();
  executor_->adopt({1, 1}, core::Attempt{});
  EXPECT_TRUE(eventually([&] { return desk_.used({1, 1}).size() == 2; }, 10s));
  stop({1, 1}, {0s});
  EXPECT_TRUE(facts_.exit_of(1));
}

}  // namespace test
