// Goal: only a call with a valid token passes the gate; everybody else is answered, or sent away, and costs little.
// Method: a real listener, real sockets, and a server that keeps what it is handed.
#include "controller/net/gate.h"

#include <mutex>
#include <thread>

#include "controller/net/http2.h"
#include "controller/net/listener.h"
#include "tests/controller/net/http2.h"
#include "tests/controller/net/loopback.h"

namespace net {
namespace {

using namespace std::chrono_literals;
using testing::client_of;
using testing::headers;
using testing::kHello;
using testing::Socket;

class GateTest : public ::testing::Test {
 protected:
  GateTest() { listener_.start(); }
  ~GateTest() override {
    listener_.stop();
    gate_->close_all();
  }
  static Gate::Verdict judge(const FirstCall& call) {
    if (call.token == "good") return {Party::kPerson, call.user, 0, ""};
    if (call.token == "rank" && call.message == "seven") return {Party::kRank, "", 0, ""};
    return {std::nullopt, "", 16, "no: 100 % sure\n"};
  }
  /// The connections that the server was handed, in order.
  std::vector<std::pair<std::string, Party>> taken(std::size_t count) {
    for (const auto until = std::chrono::steady_clock::now() + 5s; std::chrono::steady_clock::now() < until;) {
      {
        const std::lock_guard lock(mutex_);
        if (taken_.size() >= count) break;
      }
      std::this_thread::sleep_for(2ms);
    }
    const std::lock_guard lock(mutex_);
    return taken_;
  }
  bool waiting_becomes(std::size_t count) const {
    const auto until = std::chrono::steady_clock::now() + 5s;
    while (connections_->open().waiting != count && std::chrono::steady_clock::now() < until) {
      std::this_thread::sleep_for(2ms);
    }
    return connections_->open().waiting == count;
  }
  /// Everything that is said until the end.
  static std::string heard(const Socket& client) {
    std::string all;
    char buffer[4096];
    pollfd watched{client.get(), POLLIN, 0};
    while (::poll(&watched, 1, 5000) == 1) {
      const auto got = ::recv(client.get(), buffer, sizeof buffer, 0);
      if (got <= 0) return all;
      all.append(buffer, static_cast<std::size_t>(got));
    }
    return all + "(not closed)";
  }

  std::shared_ptr<Connections> connections_ =
      std::make_shared<Connections>(Shares{.strangers = 1, .waiting = 8, .people = 2, .ranks = 2});
  std::mutex mutex_;
  std::vector<std::pair<std::string, Party>> taken_;
  std::vector<Socket> sockets_;
  std::shared_ptr<Gate> gate_ = std::make_shared<Gate>(
      connections_, Gate::Rules{"/ranks/", judge, [this](int socket, const Newcomer& first, Party party) {
                                  const std::lock_guard lock(mutex_);
                                  taken_.emplace_back(first.said(), party);
                                  sockets_.emplace_back(socket);
                                }});
  Listener listener_{"127.0.0.1:0", gate_};
  // For a test that passes the time.
  Socket late_ = testing::listening();
  const int late_port_ = testing::port_of(late_.get());
};

TEST_F(GateTest, GreetsAtOnceAndHandsOverWhoShowsAToken) {
  const auto client = client_of(listener_.port());
  char greeting[15];
  ASSERT_EQ(::recv(client.get(), greeting, sizeof greeting, MSG_WAITALL), 15);
  EXPECT_EQ(greeting[3], 4) << "SETTINGS, before the client has said anything";
  const auto call = kHello + headers(1, "/people/List", "good", "ben");
  ASSERT_EQ(::send(client.get(), call.data(), call.size(), 0), static_cast<ssize_t>(call.size()));
  EXPECT_EQ(taken(1), (std::vector<std::pair<std::string, Party>>{{call, Party::kPerson}}));
  EXPECT_EQ(connections_->open().people, 1U);
  EXPECT_TRUE(waiting_becomes(0));
  const auto rank = client_of(listener_.port(), kHello + headers(1, "/ranks/Beat", "rank") + testing::data(1, "seven"));
  EXPECT_EQ(taken(2).back().second, Party::kRank);
  EXPECT_EQ(connections_->open().ranks, 1U);
}

TEST_F(GateTest, ACallWithoutAValidTokenIsAnsweredAndEnds) {
  const auto client =
      client_of(listener_.port(), kHello + headers(1, "/people/List", "bad") + testing::data(1, "body"));
  EXPECT_EQ(heard(client), http2_greeting(Gate::kMostStreams) + http2_refusal(1, 16, "no: 100 % sure\n"));
  const auto refusal = http2_refusal(1, 16, "no: 100 % sure\n");
  EXPECT_NE(refusal.find("no: 100 %25 sure%0A"), std::string::npos);
  EXPECT_TRUE(taken(0).empty());
  EXPECT_TRUE(waiting_becomes(0));
}

TEST_F(GateTest, WhoSpeaksNoGrpcIsClosed) {
  const auto http = client_of(listener_.port(), "GET / HTTP/1.1\r\n\r\n");
  EXPECT_EQ(heard(http).substr(0, 15), http2_greeting(Gate::kMostStreams));
  const auto resets = client_of(listener_.port(), kHello + testing::frame(3, 0, 1, std::string(4, '\0')));
  EXPECT_EQ(heard(resets).size(), 15U);
  EXPECT_TRUE(waiting_becomes(0));
}

TEST_F(GateTest, OneTooManySendsSomebodyAwayWithTheWordThatNothingWasBegun) {
  std::vector<Socket> crowd;
  for (int i = 0; i < 8; ++i) crowd.push_back(client_of(listener_.port()));
  ASSERT_TRUE(waiting_becomes(8));
  for (int i = 0; i < 100; ++i) crowd.push_back(client_of(listener_.port()));
  std::size_t away = 0;
  for (const auto until = std::chrono::steady_clock::now() + 5s;
       away < 100 && std::chrono::steady_clock::now() < until;) {
    away = connections_->crowd().total(Port::kGrpc);
  }
  EXPECT_EQ(away, 100U);
  EXPECT_EQ(connections_->open().waiting, 8U);
  EXPECT_TRUE(connections_->crowd().is_at(Port::kGrpc, std::chrono::steady_clock::now()));
  std::size_t here = 0;
  std::string said;
  for (const auto& one : crowd) {
    char buffer[512];
    const auto got = ::recv(one.get(), buffer, sizeof buffer, MSG_DONTWAIT);
    said.assign(buffer, static_cast<std::size_t>(std::max<ssize_t>(got, 0)));
    if (said == http2_greeting(Gate::kMostStreams)) {
      ++here;
      continue;
    }
    EXPECT_EQ(said, http2_greeting(Gate::kMostStreams) + http2_goodbye("too many connections without a token"));
  }
  EXPECT_EQ(here, 8U);
}

TEST_F(GateTest, EverybodyWhoIsTurnedAwayIsCounted) {
  const auto& crowd = connections_->crowd();
  EXPECT_NE(heard(client_of(listener_.port(), kHello + headers(1, "/people/List", "bad"))), "");
  EXPECT_EQ(crowd.total(Port::kGrpc), 1U) << "a wrong token";
  EXPECT_NE(heard(client_of(listener_.port(), "GET / HTTP/1.1\r\n\r\n")), "");
  EXPECT_EQ(crowd.total(Port::kGrpc), 2U) << "no HTTP/2";
  const auto call = kHello + headers(1, "/people/List", "good", "ben");
  const auto first = client_of(listener_.port(), call);
  ASSERT_EQ(taken(1).size(), 1U);
  EXPECT_EQ(crowd.total(Port::kGrpc), 2U);
  EXPECT_NE(heard(client_of(listener_.port(), call)), "");
  EXPECT_EQ(crowd.total(Port::kGrpc), 3U) << "too many of one user";
}

TEST_F(GateTest, WhoDoesNotCallInTimeIsCounted) {
  listener_.stop();
  const auto client = client_of(late_port_);
  const auto begun = Connections::Clock::now();
  gate_->enter(::accept4(late_.get(), nullptr, nullptr, SOCK_CLOEXEC), begun);
  gate_->tidy(begun + Gate::kPatience - 1ms);
  EXPECT_EQ(connections_->crowd().total(Port::kGrpc), 0U);
  gate_->tidy(begun + Gate::kPatience);
  EXPECT_EQ(connections_->crowd().total(Port::kGrpc), 1U);
  EXPECT_EQ(heard(client), http2_greeting(Gate::kMostStreams) + http2_goodbye("no call in time"));
}

TEST_F(GateTest, ACrowdWithAWrongTokenIsNamed) {
  const auto wrong = kHello + headers(1, "/people/List", "bad");
  for (std::size_t i = 0; i < Crowd::kMany; ++i) EXPECT_NE(heard(client_of(listener_.port(), wrong)), "");
  const auto said = connections_->crowd().text(Connections::Clock::now());
  EXPECT_NE(said.find("50 without a valid token), most of them from 127.0.0.1"), std::string::npos) << said;
}

TEST_F(GateTest, OneUserHasHalfOfThePlacesOfPeople) {
  const auto call = kHello + headers(1, "/people/List", "good", "ben");
  const auto first = client_of(listener_.port(), call);
  ASSERT_EQ(taken(1).size(), 1U);
  const auto second = client_of(listener_.port(), call);
  EXPECT_NE(heard(second).find("max_connections_of_user: ben has 1 connections open"), std::string::npos);
  const auto other = client_of(listener_.port(), kHello + headers(1, "/people/List", "good", "eva"));
  EXPECT_EQ(taken(2).size(), 2U);
}

TEST_F(GateTest, ThousandsThatComeAndGoLeaveNothingBehind) {
  for (int i = 0; i < 2000; ++i) client_of(listener_.port(), i % 2 ? kHello : "");
  EXPECT_TRUE(waiting_becomes(0));
  const auto person = client_of(listener_.port(), kHello + headers(1, "/people/List", "good"));
  EXPECT_EQ(taken(1).size(), 1U);
}

}  // namespace
}  // namespace net
