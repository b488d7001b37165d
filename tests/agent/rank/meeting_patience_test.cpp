#include "agent/rank/meeting.h"

#include <gtest/gtest.h>

namespace agent::rank {
namespace {

using namespace std::chrono_literals;
using Time = MeetingPatience::Clock::time_point;

TEST(MeetingPatience, RanksThatDoNotComeCostTheLimit) {
  MeetingPatience patience(120s, 30min, Time(0s));
  for (int second = 2; second < 120; second += 2) {
    patience.heard(true, Time(std::chrono::seconds(second)));
    EXPECT_GT(patience.left(Time(std::chrono::seconds(second))), 0s) << second;
  }
  EXPECT_EQ(patience.left(Time(120s)), 0s);
  EXPECT_FALSE(patience.controller_is_away());
}

TEST(MeetingPatience, AControllerThatIsAwayIsWaitedForMuchLonger) {
  MeetingPatience patience(120s, 30min, Time(0s));
  patience.heard(false, Time(1s));
  EXPECT_TRUE(patience.controller_is_away());
  EXPECT_EQ(patience.left(Time(1s)), 30min);
  patience.heard(false, Time(29min));
  EXPECT_EQ(patience.left(Time(29min + 1s)), 1min) << "each failure does not begin anew";
  EXPECT_EQ(patience.left(Time(40min)), 0s);
}

// Some ranks of an attempt may not have started when the controller is back.
TEST(MeetingPatience, WhenTheControllerIsBackTheRanksHaveTheWholeLimit) {
  MeetingPatience patience(120s, 30min, Time(0s));
  patience.heard(true, Time(100s));
  patience.heard(false, Time(101s));
  patience.heard(true, Time(20min));
  EXPECT_EQ(patience.left(Time(20min)), 120s);
  EXPECT_EQ(patience.left(Time(22min)), 0s);
}

}  // namespace
}  // namespace agent::rank
