// Goal: each connection is counted for the right party, and the right stranger is shut down when connections are short.
// Method: real sockets; the test passes the time.
#include "controller/net/connections.h"

#include <vector>

#include "tests/controller/net/loopback.h"

namespace net {
namespace {

using namespace std::chrono_literals;
using testing::Socket;

class ConnectionsTest : public ::testing::Test {
 protected:
  struct Pair {
    Socket client, server;
    std::string peer() const { return "ipv4:127.0.0.1:" + std::to_string(testing::port_of(client.get())); }
  };
  Pair connect() {
    Pair pair;
    pair.client = testing::client_of(port_);
    pair.server = Socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    connections_.take_stranger(pair.server.get(), now_);
    return pair;
  }
  /// One more stranger. False: there is no place for it.
  bool comes() {
    came_.push_back({testing::client_of(port_), Socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC))});
    return connections_.take_stranger(came_.back().server.get(), now_);
  }
  void know(const Pair& pair, Party party) {
    connections_.know(static_cast<std::uint16_t>(port_), pair.peer(), party, now_, [] { return true; });
  }

  Socket listener_ = testing::listening();
  const int port_ = testing::port_of(listener_.get());
  std::vector<Pair> came_;
  Connections connections_{Shares{.strangers = 2, .waiting = 4, .people = 1, .ranks = 2, .asking = 4}};
  Connections::Time now_ = Connections::Clock::now();
};

TEST_F(ConnectionsTest, AStrangerThatHasHadItsTimeMakesRoomForAnother) {
  const auto first = connect();
  now_ += 1ms;
  const auto second = connect();
  EXPECT_FALSE(comes()) << "both may still be served";
  now_ += Connections::kGrace;
  EXPECT_TRUE(comes());
  EXPECT_TRUE(first.client.is_ended()) << "the oldest is shut down";
  EXPECT_FALSE(second.client.is_ended(0));
  EXPECT_EQ(connections_.open().strangers, 2U);
}

TEST_F(ConnectionsTest, OneWhoseRequestIsWholeIsNotSeenOffUntilItWasAnswered) {
  const auto asking = connect();
  const auto half = connect();
  connections_.asked(asking.server.get(), now_);
  now_ += Connections::kGrace;
  EXPECT_TRUE(comes());
  EXPECT_TRUE(half.client.is_ended()) << "its request is not whole";
  EXPECT_FALSE(asking.client.is_ended(0)) << "it is our turn";
  connections_.answered(asking.server.get(), now_);
  EXPECT_FALSE(comes()) << "it may ask again";
  now_ += Connections::kGrace;
  EXPECT_TRUE(comes());
  EXPECT_TRUE(asking.client.is_ended());
}

TEST_F(ConnectionsTest, NobodyWaitsForUsForEver) {
  const auto asking = connect();
  const auto other = connect();
  connections_.asked(asking.server.get(), now_);
  connections_.asked(other.server.get(), now_);
  now_ += Connections::kOurTurn - 1ms;
  EXPECT_FALSE(comes());
  now_ += 1ms;
  EXPECT_TRUE(comes());
}

// The fault was: each byte gave a stranger its time anew, and 160 of them five seconds.
TEST_F(ConnectionsTest, BytesThatTrickleGiveAStrangerNoTime) {
  const auto trickling = connect();
  const auto large = connect();
  const std::string half(4000, 'x');
  ASSERT_EQ(::send(large.client.get(), half.data(), half.size(), 0), static_cast<ssize_t>(half.size()));
  for (int i = 0; i < 10; ++i) {
    EXPECT_FALSE(comes());
    now_ += Connections::kGrace / 10;
    ASSERT_EQ(::send(trickling.client.get(), "x", 1, 0), 1);
  }
  EXPECT_TRUE(comes());
  EXPECT_TRUE(trickling.client.is_ended());
  EXPECT_TRUE(comes());
  EXPECT_TRUE(large.client.is_ended());
}

TEST_F(ConnectionsTest, InACrowdItsTimeIsShort) {
  const auto first = connect();
  const auto second = connect();
  connections_.set_waiting(Port::kDashboard, 3);
  EXPECT_FALSE(comes());
  now_ += Connections::kGraceInACrowd;
  connections_.set_waiting(Port::kDashboard, 2);
  EXPECT_FALSE(comes());
  connections_.set_waiting(Port::kDashboard, 3);
  EXPECT_TRUE(comes()) << "more are at the entrance than there are places";
  EXPECT_TRUE(first.client.is_ended());
  EXPECT_EQ(connections_.crowd().total(Port::kDashboard), 1U);
}

TEST_F(ConnectionsTest, APortIsCrowdedWhenHalfOfItsEntranceIsTaken) {
  EXPECT_FALSE(connections_.is_crowded(Port::kDashboard, now_));
  connections_.set_waiting(Port::kDashboard, 2);
  EXPECT_TRUE(connections_.is_crowded(Port::kDashboard, now_));
  EXPECT_FALSE(connections_.is_crowded(Port::kGrpc, now_));
  connections_.set_waiting(Port::kDashboard, 1);
  EXPECT_FALSE(connections_.is_crowded(Port::kDashboard, now_));
  for (std::size_t i = 0; i < Crowd::kMany; ++i) {
    connections_.crowd().turned_away(Port::kGrpc, {}, Crowd::Why::kNoToken, now_);
  }
  EXPECT_TRUE(connections_.is_crowded(Port::kGrpc, now_));
}

TEST_F(ConnectionsTest, RanksAndPeopleAreNotStrangersAndKeepTheirPlaces) {
  const auto rank = connect();
  const auto person = connect();
  know(rank, Party::kRank);
  connections_.know(person.server.get(), Party::kPerson, now_);
  const auto third = connect();
  const auto fourth = connect();
  now_ += Connections::kKnownWithin;
  connections_.tidy(now_);
  EXPECT_TRUE(third.client.is_ended());
  EXPECT_TRUE(fourth.client.is_ended()) << "no token within kKnownWithin";
  EXPECT_FALSE(rank.client.is_ended(0));
  EXPECT_FALSE(person.client.is_ended(0));
  const auto open = connections_.open();
  EXPECT_EQ(open.ranks, 1U);
  EXPECT_EQ(open.people, 1U);
  EXPECT_EQ(open.strangers, 0U);
}

TEST_F(ConnectionsTest, AWrongTokenChangesNothingAndAKnownConnectionIsNotAskedAgain) {
  const auto pair = connect();
  const auto port = static_cast<std::uint16_t>(port_);
  connections_.know(port, pair.peer(), Party::kRank, now_, [] { return false; });
  EXPECT_EQ(connections_.open().strangers, 1U);
  know(pair, Party::kRank);
  EXPECT_EQ(connections_.open().ranks, 1U);
  connections_.know(port, pair.peer(), Party::kRank, now_, [] {
    ADD_FAILURE() << "asked again";
    return false;
  });
}

TEST_F(ConnectionsTest, PeersAreRecognisedAsGrpcNamesThem) {
  const auto pair = connect();
  const auto port = static_cast<std::uint16_t>(port_);
  const auto number = std::to_string(testing::port_of(pair.client.get()));
  for (const auto& other : {std::string("unix:/x"), std::string(), "ipv4:127.0.0.2:" + number,
                            std::string("ipv4:127.0.0.1:x"), "ipv6:%5B::1%5D:" + number}) {
    connections_.know(port, other, Party::kRank, now_, [] { return true; });
    EXPECT_EQ(connections_.open().strangers, 1U) << other;
  }
  connections_.know(static_cast<std::uint16_t>(port + 1), pair.peer(), Party::kRank, now_, [] { return true; });
  EXPECT_EQ(connections_.open().strangers, 1U) << "another port of ours";
  connections_.know(port, "ipv6:%5B::ffff:127.0.0.1%5D:" + number, Party::kRank, now_, [] { return true; });
  EXPECT_EQ(connections_.open().ranks, 1U) << "the same address, written as IPv6";
  const auto other = connect();
  const auto its_number = std::to_string(testing::port_of(other.client.get()));
  connections_.know(port, "ipv6:%5b::ffff:127.0.0.1%5d:" + its_number, Party::kPerson, now_, [] { return true; });
  EXPECT_EQ(connections_.open().people, 1U) << "small letters";
}

TEST_F(ConnectionsTest, BeyondTheirShareOnesWithATokenTakeTurnsWithStrangers) {
  const auto first = connect();
  know(first, Party::kPerson);
  const auto second = connect();
  know(second, Party::kPerson);
  EXPECT_EQ(connections_.open().people, 1U);
  now_ += Connections::kKnownWithin;
  connections_.tidy(now_);
  EXPECT_FALSE(second.client.is_ended(0)) << "it has shown a token";
  const auto stranger = connect();
  now_ += Connections::kGrace;
  know(second, Party::kPerson);  // it shows its token
  EXPECT_TRUE(comes());
  EXPECT_TRUE(stranger.client.is_ended()) << "heard longest ago";
  EXPECT_FALSE(second.client.is_ended(0));
}

TEST_F(ConnectionsTest, APlaceThatComesFreeIsTakenByWhoSpeaksNext) {
  auto first = connect();
  know(first, Party::kPerson);
  const auto second = connect();
  know(second, Party::kPerson);
  first.server.close();
  now_ += 1s;
  know(second, Party::kPerson);
  const auto open = connections_.open();
  EXPECT_EQ(open.people, 1U);
  EXPECT_EQ(open.strangers, 0U);
}

TEST_F(ConnectionsTest, WhatItShutsDownTakesAPlaceUntilItIsClosed) {
  auto first = connect();
  const auto second = connect();
  now_ += Connections::kGrace;
  EXPECT_TRUE(comes());
  EXPECT_TRUE(comes());
  EXPECT_EQ(connections_.open().closing, 2U);
  now_ += Connections::kGrace;
  EXPECT_FALSE(comes()) << "as many are closing as there are places";
  first.server.close();
  EXPECT_TRUE(comes());
}

/// Two attempts: "job 1 attempt 1" has one rank, "job 2 attempt 1" has two. Six places.
class PlacesOfRanks : public ConnectionsTest {
 protected:
  std::string comes(const std::string& whose, std::uint32_t ranks) {
    came_.push_back({testing::client_of(port_), Socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC))});
    return places_.admit(came_.back().server.get(), {Port::kGrpc, Party::kRank, whose, ranks}, now_);
  }
  bool is_open(std::size_t i) const { return !came_.at(i).client.is_ended(0); }

  Connections places_{Shares{.strangers = 2, .waiting = 4, .people = 2, .ranks = 6, .asking = 4}};
};

// The fault was: the token of one rank could take the whole share of ranks, and nobody else's got in.
TEST_F(PlacesOfRanks, WhoHasTooManyARankGivesWayForOthers) {
  for (int i = 0; i < 6; ++i) EXPECT_EQ(comes("job 1 attempt 1", 1), "") << "nobody else needs the places";
  EXPECT_EQ(comes("job 1 attempt 1", 1),
            "max_connections_of_attempt: job 1 attempt 1 has 6 connections open for 1 ranks, and all 6 connections "
            "reserved for ranks are open; end some of them, or try again");
  EXPECT_EQ(comes("job 2 attempt 1", 2), "");
  EXPECT_FALSE(is_open(5)) << "the newest of the attempt that has too many";
  came_[5].server.close();
  EXPECT_EQ(comes("job 2 attempt 1", 2), "");
  EXPECT_FALSE(is_open(4));
  came_[4].server.close();
  EXPECT_EQ(comes("job 3 attempt 1", 1), "");
  came_[3].server.close();
  EXPECT_EQ(comes("job 3 attempt 1", 1), "");
  for (std::size_t i : {0, 1}) EXPECT_TRUE(is_open(i)) << "two of its rank stay";
  for (std::size_t i : {7, 8, 9, 10}) EXPECT_TRUE(is_open(i));
  EXPECT_EQ(places_.open().ranks, 6U);
}

TEST_F(PlacesOfRanks, WhatAnAttemptNeedsIsNotTakenFromIt) {
  for (int i = 0; i < 6; ++i) EXPECT_EQ(comes("job 2 attempt 1", 3), "");
  EXPECT_EQ(comes("job 1 attempt 1", 1), "") << "it takes turns, as before";
  for (std::size_t i = 0; i < 6; ++i) EXPECT_TRUE(is_open(i));
  EXPECT_EQ(places_.open().strangers, 1U);
}

TEST_F(PlacesOfRanks, HowManyRanksThereAreMayBeLearntLater) {
  for (int i = 0; i < 5; ++i) EXPECT_EQ(comes("job 2 attempt 1", 0), "") << "right after a restart";
  EXPECT_EQ(comes("job 2 attempt 1", 3), "");
  EXPECT_EQ(comes("job 1 attempt 1", 1), "");
  for (std::size_t i = 0; i < 6; ++i) EXPECT_TRUE(is_open(i));
}

TEST_F(PlacesOfRanks, ClosedOnesAreNotCounted) {
  for (int i = 0; i < 6; ++i) EXPECT_EQ(comes("job 1 attempt 1", 1), "");
  for (std::size_t i : {1, 2, 3, 4, 5}) came_[i].server.close();
  now_ += 1s;
  EXPECT_EQ(comes("job 1 attempt 1", 1), "");
  EXPECT_EQ(places_.open().ranks, 2U);
}

TEST_F(ConnectionsTest, ADescriptorThatIsUsedAgainIsAnotherConnection) {
  auto first = connect();
  know(first, Party::kRank);
  const int number = first.server.get();
  const auto client = testing::client_of(port_);
  first.server.close();
  const Socket server(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_EQ(server.get(), number);
  connections_.take_stranger(server.get(), now_);
  now_ += 1s;
  connections_.tidy(now_);
  const auto open = connections_.open();
  EXPECT_EQ(open.ranks, 0U);
  EXPECT_EQ(open.strangers, 1U);
}

}  // namespace
}  // namespace net
