// Goal: each connection is counted for the right party, and the right stranger is shut down when connections are short.
// Method: real sockets; the test passes the time.
#include "net/connections.h"

#include <vector>

#include "controller/net/loopback.h"

namespace net {
namespace {

using namespace std::chrono_literals;
using testing::Socket;

class ConnectionsTest : public ::testing::Test {
 protected:
  ConnectionsTest() : listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto any = testing::loopback(0);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any), 0);
    EXPECT_EQ(::listen(listener_.get(), 64), 0);
    port_ = testing::port_of(listener_.get());
  }

  struct Pair {
    Socket client, server;
    std::string peer() const { return "ipv4:127.0.0.1:" + std::to_string(testing::port_of(client.get())); }
  };
  Pair connect() {
    Pair pair;
    pair.client = testing::client_of(port_);
    pair.server = Socket(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
    connections_.enter(pair.server.get(), now_);
    return pair;
  }
  void know(const Pair& pair, Party party) {
    connections_.know(static_cast<std::uint16_t>(port_), pair.peer(), party, now_, [] { return true; });
  }

  Socket listener_;
  int port_ = 0;
  Connections connections_{Shares{.strangers = 2, .people = 1, .ranks = 2}};
  Connections::Time now_ = Connections::Clock::now();
};

TEST_F(ConnectionsTest, AStrangerThatHasHadItsTimeMakesRoomForAnother) {
  const auto first = connect();
  now_ += 1ms;
  const auto second = connect();
  EXPECT_FALSE(connections_.make_room(now_)) << "both may still show a token";
  now_ += Connections::kGrace;
  EXPECT_TRUE(connections_.make_room(now_));
  EXPECT_TRUE(first.client.is_ended()) << "the oldest is shut down";
  EXPECT_FALSE(second.client.is_ended(0));
  EXPECT_EQ(connections_.open().strangers, 1U);
}

TEST_F(ConnectionsTest, OneThatWaitsForUsIsNotSeenOffUntilItWasAnswered) {
  const auto calling = connect();
  const auto greeting = connect();
  const std::string greets(80, 'x'), calls(Connections::kCallBytes, 'x');
  ASSERT_EQ(::send(greeting.client.get(), greets.data(), greets.size(), 0), 80);
  ASSERT_EQ(::send(calling.client.get(), calls.data(), calls.size(), 0), static_cast<ssize_t>(calls.size()));
  now_ += Connections::kGrace;
  EXPECT_FALSE(connections_.make_room(now_, 3)) << "we have read neither";
  std::string read(calls.size(), ' ');
  ASSERT_GT(::recv(greeting.server.get(), read.data(), read.size(), 0), 0);
  ASSERT_GT(::recv(calling.server.get(), read.data(), read.size(), 0), 0);
  now_ += Connections::kGraceInACrowd;
  EXPECT_TRUE(connections_.make_room(now_, 3));
  EXPECT_TRUE(greeting.client.is_ended()) << "it has not asked anything";
  const auto third = connect();
  EXPECT_FALSE(connections_.make_room(now_, 3));
  EXPECT_FALSE(calling.client.is_ended(0)) << "it may have asked";
  connections_.know(static_cast<std::uint16_t>(port_), calling.peer(), Party::kRank, now_, [] { return false; });
  EXPECT_TRUE(connections_.make_room(now_, 3));
  EXPECT_TRUE(calling.client.is_ended()) << "with a wrong token";
}

TEST_F(ConnectionsTest, InACrowdItsTimeIsShort) {
  const auto greeting = connect();
  const auto silent = connect();
  ASSERT_EQ(::send(greeting.client.get(), "hello", 5, 0), 5);
  char read[8];
  ASSERT_EQ(::recv(greeting.server.get(), read, sizeof read, 0), 5);
  EXPECT_FALSE(connections_.make_room(now_, 3));
  now_ += Connections::kSilentInACrowd;
  EXPECT_FALSE(connections_.make_room(now_, 2));
  EXPECT_TRUE(connections_.make_room(now_, 3)) << "more wait than there are places";
  EXPECT_TRUE(silent.client.is_ended());
  EXPECT_FALSE(greeting.client.is_ended(0));
  const auto third = connect();
  now_ += Connections::kGraceInACrowd;
  EXPECT_TRUE(connections_.make_room(now_, 3));
  EXPECT_TRUE(greeting.client.is_ended());
}

TEST_F(ConnectionsTest, RanksAndPeopleAreNotStrangersAndKeepTheirPlaces) {
  const auto rank = connect();
  const auto person = connect();
  know(rank, Party::kRank);
  connections_.know(person.server.get(), Party::kPerson, now_);
  const auto third = connect();
  const auto fourth = connect();
  now_ += Connections::kKnownWithin;
  EXPECT_TRUE(connections_.make_room(now_));
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
  EXPECT_TRUE(connections_.make_room(now_));
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
  EXPECT_TRUE(connections_.make_room(now_));
  const auto third = connect();
  EXPECT_TRUE(connections_.make_room(now_));
  EXPECT_EQ(connections_.open().closing, 2U);
  const auto fourth = connect();
  now_ += Connections::kGrace;
  EXPECT_FALSE(connections_.make_room(now_)) << "as many are closing as there are places";
  first.server.close();
  EXPECT_TRUE(connections_.make_room(now_));
}

TEST_F(ConnectionsTest, ADescriptorThatIsUsedAgainIsAnotherConnection) {
  auto first = connect();
  know(first, Party::kRank);
  const int number = first.server.get();
  const auto client = testing::client_of(port_);
  first.server.close();
  const Socket server(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  ASSERT_EQ(server.get(), number);
  connections_.enter(server.get(), now_);
  now_ += 1s;
  connections_.tidy(now_);
  const auto open = connections_.open();
  EXPECT_EQ(open.ranks, 0U);
  EXPECT_EQ(open.strangers, 1U);
}

}  // namespace
}  // namespace net
