// Goal: a crowd is a state with a beginning and an end, and its sentence says what people need.
// Method: the test passes the time.
#include "net/crowd.h"

#include <gtest/gtest.h>

namespace net {
namespace {

using namespace std::chrono_literals;
constexpr Address kAddress{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 7};
constexpr Address kOther{0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, 8};

TEST(Crowd, BeginsWithManyAndEndsWithACalm) {
  Crowd crowd;
  Crowd::Time now{1h};
  for (std::uint64_t i = 1; i < Crowd::kMany; ++i) crowd.turned_away(Port::kGrpc, kAddress, now);
  EXPECT_FALSE(crowd.is_at(Port::kGrpc, now));
  EXPECT_EQ(crowd.text(now), "");
  now += 2s;
  crowd.turned_away(Port::kGrpc, kOther, now);
  EXPECT_TRUE(crowd.is_at(Port::kGrpc, now));
  EXPECT_FALSE(crowd.is_at(Port::kDashboard, now));
  EXPECT_EQ(crowd.text(now),
            "a crowd at the gRPC port: 50 connections without a token were turned away in 2 s, most of them from "
            "10.0.0.7; who is connected already does not notice, others may need several tries; end what connects "
            "there, or let a firewall do so");
  now += Crowd::kCalmAfter;
  EXPECT_FALSE(crowd.is_at(Port::kGrpc, now));
  EXPECT_EQ(crowd.text(now), "");
  crowd.look(now);
  crowd.turned_away(Port::kGrpc, kAddress, now);
  EXPECT_FALSE(crowd.is_at(Port::kGrpc, now)) << "it is counted anew";
  EXPECT_EQ(crowd.total(Port::kGrpc), 51U);
  EXPECT_EQ(crowd.total(Port::kDashboard), 0U);
}

TEST(Crowd, AFewInAnHourAreNone) {
  Crowd crowd;
  Crowd::Time now{1h};
  for (int i = 0; i < 200; ++i) {
    crowd.turned_away(Port::kDashboard, kAddress, now);
    now += Crowd::kCalmAfter;
  }
  EXPECT_FALSE(crowd.is_at(Port::kDashboard, now - 1s));
}

}  // namespace
}  // namespace net
