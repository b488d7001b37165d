// Goal: in a crowd a caller with a token gets in soon, and no network takes all places.
// Method: the test passes the time, and plays thousands of newcomers a second.
#include "controller/net/crowd.h"

#include <gtest/gtest.h>

#include <set>

namespace net {
namespace {

using namespace std::chrono_literals;
using Id = WaitingRoom::Id;

Address ipv4(std::uint8_t last) {
  return {0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0xFF, 0xFF, 10, 0, 0, last};
}

class Room : public ::testing::Test {
 protected:
  /// Who had to leave; 0: nobody.
  Id enter(Id id, const Address& from = ipv4(1)) { return room_.enter(id, from, now_).value_or(0); }

  static constexpr std::chrono::seconds kPatience{10};
  std::shared_ptr<KnownNetworks> known_ = std::make_shared<KnownNetworks>();
  WaitingRoom room_{4, kPatience, known_};
  WaitingRoom::Time now_{1h};
};

TEST_F(Room, EverybodyIsInWhileThereIsRoom) {
  for (Id id = 1; id <= 4; ++id) EXPECT_EQ(enter(id), 0U);
  EXPECT_EQ(room_.size(), 4U);
  room_.leave(2);
  room_.leave(2);
  EXPECT_EQ(room_.size(), 3U);
  EXPECT_EQ(enter(5), 0U);
}

TEST_F(Room, WhoHasHadItsTimeLeavesFirst) {
  EXPECT_EQ(enter(1), 0U);
  now_ += WaitingRoom::kFairTime;
  for (Id id = 2; id <= 4; ++id) EXPECT_EQ(enter(id), 0U);
  now_ += 1ms;
  EXPECT_EQ(enter(5, ipv4(9)), 1U);
}

TEST_F(Room, ElseOneOfTheNetworkThatHasMost) {
  enter(1, ipv4(1));
  enter(2, ipv4(2));
  enter(3, ipv4(3));
  enter(4, ipv4(3));
  const auto left = enter(5, ipv4(4));
  EXPECT_TRUE(left == 3 || left == 4) << left;
}

TEST_F(Room, AnUnknownNetworkMakesRoomForAKnownOneAndNotTheOtherWayRound) {
  room_.know(ipv4(1), now_);
  for (Id id = 1; id <= 3; ++id) enter(id, ipv4(1));
  EXPECT_EQ(enter(4, ipv4(2)), 0U);
  EXPECT_EQ(enter(5, ipv4(1)), 4U) << "the known network has more, but is known";
  EXPECT_EQ(enter(6, ipv4(3)), 6U) << "a stranger among known ones is the one to go";
  EXPECT_NE(enter(7, ipv4(1)), 0U) << "among known ones it is one of them";
  now_ += KnownNetworks::kKnownFor + 1h;
  EXPECT_EQ(room_.overdue(now_).size(), 4U);
  for (Id id = 11; id <= 13; ++id) enter(id, ipv4(1));
  EXPECT_EQ(enter(14, ipv4(2)), 0U);
  EXPECT_LT(enter(15, ipv4(1)), 20U);
  EXPECT_EQ(room_.size(), 4U);
}

TEST_F(Room, AnIpv6NetworkIsOneNetwork) {
  Address first{0x20, 1, 0, 0, 0, 0, 0, 1}, second = first, other = first;
  second[15] = 77;
  other[7] = 2;
  EXPECT_EQ(network_of(first), network_of(second));
  EXPECT_NE(network_of(first), network_of(other));
  EXPECT_NE(network_of(ipv4(1)), network_of(ipv4(2)));
}

TEST_F(Room, PatienceEndsInOrderOfArrival) {
  enter(1);
  now_ += 1s;
  enter(2);
  now_ += kPatience - 1s;
  EXPECT_EQ(room_.overdue(now_), (std::vector<Id>{1}));
  EXPECT_EQ(room_.size(), 1U);
  now_ += 1s;
  EXPECT_EQ(room_.overdue(now_), (std::vector<Id>{2}));
}

/// How many of a hundred callers stay for 10 ms among 5,000 newcomers a second at 96 places.
int callers_that_stay(const Address& callers, const Address& others, bool known) {
  WaitingRoom room(96, 10s, std::make_shared<KnownNetworks>(), 3);
  WaitingRoom::Time now{1h};
  if (known) room.know(callers, now);
  int stayed = 0;
  Id id = 1000;
  for (int caller = 1; caller <= 100; ++caller) {
    std::set<Id> gone;
    const auto enter = [&](Id who, const Address& from) {
      if (const auto leaves = room.enter(who, from, now)) gone.insert(*leaves);
    };
    for (int i = 0; i < 100; ++i) enter(++id, others);
    enter(static_cast<Id>(caller), callers);
    for (int i = 0; i < 50; ++i) {
      now += 200us;
      enter(++id, others);
    }
    if (!gone.contains(static_cast<Id>(caller))) ++stayed;
    room.leave(static_cast<Id>(caller));
  }
  return stayed;
}

TEST(Crowded, ACallerHasAGoodChanceFromTheSameAddressAndASureOneFromAnother) {
  EXPECT_GT(callers_that_stay(ipv4(1), ipv4(1), false), 45);
  EXPECT_EQ(callers_that_stay(ipv4(1), ipv4(2), false), 100) << "the network that has most makes room";
  EXPECT_EQ(callers_that_stay(ipv4(1), ipv4(2), true), 100);
}

}  // namespace
}  // namespace net
