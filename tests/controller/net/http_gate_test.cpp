// Goal: at the dashboard's port nobody reaches the server before the headers of a request; whoever sends half of one,
// or bytes that trickle, has a short time that is counted from the arrival, and is counted.
// Method: the parser and the entrance with a time that the test passes; real sockets, and a server that keeps them.
#include "controller/net/gate.h"

#include <vector>

#include "tests/controller/net/loopback.h"

namespace net {
namespace {

using namespace std::chrono_literals;
using testing::Socket;
using HeadState = FirstWords::State;

constexpr std::size_t kMostBytes = 1024;
constexpr std::chrono::seconds kPatienceHere{5};

TEST(HttpHead, IsWholeWithTheEmptyLineHoweverItComes) {
  const std::string head = "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n";
  HttpHead at_once(kMostBytes), in_pieces(kMostBytes);
  EXPECT_EQ(at_once.take(head + "more"), HeadState::kCalls);
  EXPECT_EQ(at_once.said(), head + "more");
  for (std::size_t i = 0; i + 1 < head.size(); ++i)
    EXPECT_EQ(in_pieces.take(head.substr(i, 1)), HeadState::kWaits) << i;
  EXPECT_EQ(in_pieces.take("\n"), HeadState::kCalls);
  EXPECT_EQ(in_pieces.said(), head);
}

TEST(HttpHead, AnotherLanguageIsTheServersToRefuse) {
  HttpHead tls(kMostBytes);
  EXPECT_EQ(tls.take("\x16\x03\x01"), HeadState::kCalls);
  HttpHead http2(kMostBytes);
  EXPECT_EQ(http2.take("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"), HeadState::kCalls);
}

TEST(HttpHead, HasABudgetOfBytes) {
  HttpHead head(kMostBytes);
  EXPECT_EQ(head.take("GET / HTTP/1.1\r\n"), HeadState::kWaits);
  while (head.room() > 1) EXPECT_EQ(head.take("x"), HeadState::kWaits);
  EXPECT_EQ(head.take("x"), HeadState::kMisbehaves);
  EXPECT_EQ(head.room(), 0U);
}

class HttpGateTest : public ::testing::Test {
 protected:
  /// Connects, says this, and is let in and looked at.
  Socket comes(const std::string& says = "") {
    auto client = testing::client_of(testing::port_of(listener_.get()), says);
    gate_.enter(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC), now_);
    gate_.work(now_);
    return client;
  }
  void says(const Socket& client, const std::string& text) {
    ASSERT_EQ(::send(client.get(), text.data(), text.size(), MSG_NOSIGNAL), static_cast<ssize_t>(text.size()));
    gate_.work(now_);
  }
  /// The first bytes of the answer.
  static std::string answer(const Socket& client) {
    std::string got(12, ' ');
    return ::recv(client.get(), got.data(), got.size(), MSG_DONTWAIT | MSG_WAITALL) == 12 ? got : "(none)";
  }
  std::uint64_t turned_away() { return connections_->crowd().total(Port::kDashboard); }

  const std::string person_ = "GET / HTTP/1.1\r\ntoken\r\n\r\n", stranger_ = "GET / HTTP/1.1\r\n\r\n";
  std::shared_ptr<Connections> connections_ =
      std::make_shared<Connections>(Shares{.strangers = 2, .waiting = 4, .people = 4, .ranks = 4, .asking = 3});
  std::vector<std::string> taken_;
  std::vector<Socket> sockets_;
  HttpGate gate_{
      connections_,
      {kMostBytes, kPatienceHere, [](const std::string& head) { return head.find("token") != std::string::npos; },
       [this](int socket, const std::string& said) {
         taken_.push_back(said);
         sockets_.emplace_back(socket);
       }}};
  Socket listener_ = testing::listening();
  Door::Time now_ = Connections::Clock::now();
};

TEST_F(HttpGateTest, HandsOverWhoHasTheHeadersOfARequestWithEverythingThatWasRead) {
  const auto person = comes(person_ + "body");
  EXPECT_EQ(taken_, (std::vector<std::string>{person_ + "body"}));
  EXPECT_EQ(connections_->open().people, 1U);
  const auto other = comes(stranger_);
  EXPECT_EQ(taken_.size(), 2U);
  EXPECT_EQ(connections_->open().strangers, 1U);
  EXPECT_EQ(connections_->open().asking, 0U);
  EXPECT_EQ(turned_away(), 0U);
}

TEST_F(HttpGateTest, HalfARequestTakesNoPlaceOfTheServerHoweverLongItIs) {
  std::vector<Socket> halves;
  for (int i = 0; i < 3; ++i) halves.push_back(comes("GET / HTTP/1.1\r\nX-Long: " + std::string(500, 'x')));
  EXPECT_EQ(connections_->open().asking, 3U);
  EXPECT_EQ(connections_->open().strangers, 0U);
  const auto caller = comes(stranger_);
  EXPECT_EQ(taken_, (std::vector<std::string>{stranger_})) << "who has said everything already needs no place";
  EXPECT_EQ(turned_away(), 0U);
  halves.push_back(comes("GET / HTTP/1.1\r\n"));
  EXPECT_EQ(connections_->open().asking, 3U);
  EXPECT_EQ(turned_away(), 1U) << "somebody made room";
}

TEST_F(HttpGateTest, BytesThatTrickleGiveNoTime) {
  const auto trickling = comes("G");
  for (auto until = now_ + kPatienceHere; now_ < until - 50ms;) {
    now_ += 50ms;
    says(trickling, "E");
    gate_.tidy(now_);
    ASSERT_EQ(connections_->open().asking, 1U);
  }
  now_ += 50ms;
  gate_.tidy(now_);
  EXPECT_EQ(connections_->open().asking, 0U);
  EXPECT_TRUE(trickling.is_ended());
  EXPECT_EQ(turned_away(), 1U);
}

TEST_F(HttpGateTest, HeadersWithoutAnEndAreRefused) {
  const auto endless = comes("GET / HTTP/1.1\r\nX: " + std::string(kMostBytes, 'x'));
  EXPECT_EQ(answer(endless), "HTTP/1.1 431");
  EXPECT_EQ(connections_->open().asking, 0U);
  EXPECT_EQ(turned_away(), 1U);
  EXPECT_TRUE(taken_.empty());
}

TEST_F(HttpGateTest, WithoutAPlaceForStrangersTheyAreToldSoAndPeopleComeIn) {
  const auto first = comes(stranger_), second = comes(stranger_), third = comes(stranger_);
  EXPECT_EQ(answer(third), "HTTP/1.1 503");
  EXPECT_EQ(turned_away(), 1U);
  const auto person = comes(person_);
  EXPECT_EQ(taken_.back(), person_);
  EXPECT_EQ(connections_->open().people, 1U);
  now_ += Connections::kGrace;
  const auto fourth = comes(stranger_);
  EXPECT_EQ(taken_.back(), stranger_) << "the time of the first is over";
  EXPECT_TRUE(first.is_ended());
}

TEST_F(HttpGateTest, ACrowdOfHalfRequestsIsNamed) {
  std::vector<Socket> crowd;
  for (std::size_t i = 0; i < Crowd::kMany + 3; ++i) crowd.push_back(comes(std::string(200, 'G')));
  EXPECT_TRUE(connections_->crowd().is_at(Port::kDashboard, now_));
  EXPECT_NE(connections_->crowd().text(now_).find("a crowd at the dashboard port: 50 connections were turned away"),
            std::string::npos);
  EXPECT_NE(connections_->crowd().text(now_).find("most of them from 127.0.0.1"), std::string::npos);
}

TEST_F(HttpGateTest, OneAddressHasHalfOfThePlacesOfPeople) {
  const auto first = comes(person_), second = comes(person_), third = comes(person_);
  EXPECT_EQ(taken_.size(), 2U);
  EXPECT_EQ(answer(third), "HTTP/1.1 503");
}

}  // namespace
}  // namespace net
