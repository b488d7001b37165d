// Goal: a crowd is a state with a beginning and an end, and its sentence says what people need.
// Method: the test passes the time.
#include "controller/net/crowd.h"

#include <gtest/gtest.h>

namespace net {
namespace {

using namespace std::chrono_literals;
constexpr Address kAddress{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 7};
constexpr Address kOther{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 8};

using Why = Crowd::Why;

TEST(Crowd, BeginsWithManyAndEndsWithACalm) {
  Crowd crowd;
  Crowd::Time now{1h};
  for (std::size_t i = 1; i < Crowd::kMany; ++i) crowd.turned_away(Port::kGrpc, kAddress, Why::kNoPlace, now);
  EXPECT_FALSE(crowd.is_at(Port::kGrpc, now));
  EXPECT_EQ(crowd.text(now), "");
  now += 2s;
  crowd.turned_away(Port::kGrpc, kOther, Why::kNoToken, now);
  EXPECT_TRUE(crowd.is_at(Port::kGrpc, now));
  EXPECT_FALSE(crowd.is_at(Port::kDashboard, now));
  EXPECT_EQ(crowd.text(now),
            "a crowd at the gRPC port: 50 connections were turned away in 2 s (49 for want of a place, 1 without a "
            "valid token), most of them from 10.0.0.7; who is connected already does not notice, others may need "
            "several tries; end what connects there, or let a firewall do so");
  now += Crowd::kCalmAfter;
  EXPECT_FALSE(crowd.is_at(Port::kGrpc, now));
  EXPECT_EQ(crowd.text(now), "");
  crowd.look(now);
  crowd.turned_away(Port::kGrpc, kAddress, Why::kNoPlace, now);
  EXPECT_FALSE(crowd.is_at(Port::kGrpc, now)) << "it is counted anew";
  EXPECT_EQ(crowd.total(Port::kGrpc), 51U);
  EXPECT_EQ(crowd.total(Port::kDashboard), 0U);
}

TEST(Crowd, EveryWayOfBeingTurnedAwayCounts) {
  for (const auto why : {Why::kNoPlace, Why::kNoToken, Why::kBadWords, Why::kLate, Why::kNoPlaceOfItsOwn}) {
    Crowd crowd;
    const Crowd::Time now{1h};
    for (std::size_t i = 0; i < Crowd::kMany; ++i) crowd.turned_away(Port::kDashboard, kOther, why, now);
    EXPECT_TRUE(crowd.is_at(Port::kDashboard, now));
    EXPECT_NE(crowd.text(now).find("a crowd at the dashboard port"), std::string::npos);
    EXPECT_NE(crowd.text(now).find("most of them from 10.0.0.8"), std::string::npos);
  }
}

TEST(Crowd, AFewInAnHourAreNone) {
  Crowd crowd;
  Crowd::Time now{1h};
  for (int i = 0; i < 2000; ++i) {
    crowd.turned_away(Port::kDashboard, kAddress, Why::kNoToken, now);
    now += std::chrono::milliseconds(Crowd::kCalmAfter) / 40;
    EXPECT_FALSE(crowd.is_at(Port::kDashboard, now)) << "a script with an old token";
  }
}

TEST(Crowd, AFewThatGoOnDoNotKeepItUp) {
  Crowd crowd;
  Crowd::Time now{1h};
  for (std::size_t i = 0; i < Crowd::kMany; ++i) crowd.turned_away(Port::kGrpc, kAddress, Why::kNoPlace, now);
  for (int i = 0; i < 4; ++i) {
    now += std::chrono::milliseconds(Crowd::kCalmAfter) / 3;
    crowd.turned_away(Port::kGrpc, kOther, Why::kNoToken, now);
  }
  EXPECT_FALSE(crowd.is_at(Port::kGrpc, now));
}

}  // namespace
}  // namespace net
