#include "controller/net/connections.h"

#include <gtest/gtest.h>

namespace net {
namespace {

std::uint64_t most_open(const Shares& shares) {
  return 2 * shares.strangers + shares.asking + shares.waiting + shares.people + shares.ranks;
}

TEST(Shares, NeverExceedTheDescriptorsAndLeaveSomeForTheProcess) {
  for (std::uint64_t descriptors = kFewestDescriptors; descriptors < 300'000; descriptors += 1 + descriptors / 7) {
    const auto shares = shares_of(descriptors);
    EXPECT_LE(most_open(shares) + 40, descriptors) << descriptors;
    EXPECT_GE(shares.strangers, 2U) << descriptors;
    EXPECT_GE(shares.asking, 3U) << descriptors;
    EXPECT_GE(shares.waiting, 5U) << descriptors;
    EXPECT_GE(shares.people, 4U) << descriptors;
    EXPECT_GE(shares.ranks, 8U) << descriptors;
  }
}

TEST(Shares, MostAreForRanks) {
  EXPECT_EQ(shares_of(64).ranks, 8U);
  EXPECT_EQ(shares_of(1024).ranks, 480U);
  EXPECT_EQ(shares_of(20'000).ranks, 16'416U);
  EXPECT_GE(shares_of(20'000).ranks, 2U * 5'000U) << "5,000 ranks of trainings";
  EXPECT_EQ(shares_of(1024).people, 96U);
}

TEST(Shares, AnUnboundedLimitIsNoReasonForUnboundedConnections) {
  EXPECT_EQ(shares_of(~std::uint64_t{0}).ranks, shares_of(262'144).ranks);
}

}  // namespace
}  // namespace net
