// Goal: the probe notices a port that does not answer, opens it again, and gives up after repeated failures.
// Method: small servers that answer, close, or say nothing.
#include "controller/net/self_probe.h"

#include <poll.h>

#include <atomic>
#include <future>

#include "tests/controller/net/loopback.h"
#include "tests/no_descriptors.h"

namespace net {
namespace {

using namespace std::chrono_literals;
using testing::Socket;

/// A server that answers each connection with `answer`. With "" it closes the connection, with "..." it sends nothing.
class Server {
 public:
  explicit Server(std::string answer)
      : answer_(std::move(answer)), listener_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    const auto any = testing::loopback(0);
    EXPECT_EQ(::bind(listener_.get(), reinterpret_cast<const sockaddr*>(&any), sizeof any), 0);
    EXPECT_EQ(::listen(listener_.get(), 16), 0);
    thread_ = std::thread([this] { run(); });
  }
  ~Server() {
    ::shutdown(listener_.get(), SHUT_RDWR);
    thread_.join();
  }
  int port() const { return testing::port_of(listener_.get()); }
  int accepted() const { return accepted_; }

 private:
  void run() {
    std::vector<Socket> kept;
    for (;;) {
      // accept4() reserves its descriptor before it waits: a test without descriptors would end this server.
      pollfd asked{listener_.get(), POLLIN, 0};
      if (::poll(&asked, 1, -1) < 0) continue;
      Socket client(::accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (client.get() < 0) return;
      ++accepted_;
      char buffer[256];
      [[maybe_unused]] const auto got = ::recv(client.get(), buffer, sizeof buffer, 0);
      if (answer_ != "...") [[maybe_unused]]
        const auto sent = ::send(client.get(), answer_.data(), answer_.size(), MSG_NOSIGNAL);
      if (answer_ == "...") kept.push_back(std::move(client));
    }
  }
  const std::string answer_;
  std::atomic<int> accepted_ = 0;
  Socket listener_;
  std::thread thread_;
};

/// A greeting, and the beginning of an answer.
const std::string kAnswer(
    "\0\0\0\4\0\0\0\0\0"
    "\0\0\1\1\5\0\0\0\1\x88",
    19);

TEST(SelfProbe, KnowsAnAnswerFromSilence) {
  const Server grpc(kAnswer), http("HTTP/1.1 400 Bad Request\r\n\r\n"), closing(""), silent("..."), odd("SSH-2.0-x");
  EXPECT_EQ(why_silent(grpc_port("127.0.0.1", grpc.port(), "token", {}), 5s), "");
  EXPECT_EQ(why_silent(grpc_port("0.0.0.0", grpc.port(), "token", {}), 5s), "");
  EXPECT_EQ(why_silent(http_port("127.0.0.1", http.port(), "token", {}), 5s), "");
  EXPECT_EQ(why_silent(http_port("127.0.0.1", silent.port(), "token", {}), 1s, true), "no answer in time");
  EXPECT_EQ(why_silent(http_port("127.0.0.1", closing.port(), "token", {}), 5s, true),
            "the connection was closed without an answer");
  EXPECT_EQ(why_silent(grpc_port("127.0.0.1", odd.port(), "token", {}), 5s, true),
            "the answer is not the expected one");
  int nobody = 0;
  {
    const Server gone("");
    nobody = gone.port();
  }
  EXPECT_EQ(why_silent(grpc_port("127.0.0.1", nobody, "token", {}), 5s, true), "Connection refused");
}

TEST(SelfProbe, ThatIsSentAwayTimeAndAgainIsNoCrowdByItself) {
  const Server closing("");
  EXPECT_NE(why_silent(grpc_port("127.0.0.1", closing.port(), "token", {}), 2s), "");
  EXPECT_GE(closing.accepted(), 3) << "the first one may have been sent away in a crowd";
  EXPECT_LE(closing.accepted(), 7) << "fifty in ten seconds are a crowd";
}

TEST(SelfProbe, SaysThatItHasNoDescriptorAndLeavesNoneOpen) {
  const Server grpc(kAnswer);
  for (int i = 0; i < 3; ++i) {
    const test::NoDescriptors left;
    EXPECT_EQ(why_silent(grpc_port("127.0.0.1", grpc.port(), "token", {}), 100ms, true), "Too many open files");
  }
  EXPECT_EQ(why_silent(grpc_port("127.0.0.1", grpc.port(), "token", {}), 5s), "");
}

TEST(SelfProbe, OpensAnewWhatIsSilentAndGivesUpAfterThreeTimes) {
  const Server silent("...");
  std::atomic<int> reopened = 0;
  std::promise<std::string> why;
  const SelfProbe probe({http_port("127.0.0.1", silent.port(), "token", [&] { ++reopened; })},
                        {.every = 10ms, .again = 10ms, .patience = 50ms},
                        [&](const std::string& text) { why.set_value(text); });
  EXPECT_EQ(why.get_future().get(), "the dashboard port " + std::to_string(silent.port()) +
                                        " has not answered 3 times, although it was opened again: no answer in time");
  EXPECT_EQ(reopened, 2);
}

TEST(SelfProbe, AGreetingAloneIsNoAnswer) {
  const Server greets(kAnswer.substr(0, 9));
  EXPECT_EQ(why_silent(grpc_port("127.0.0.1", greets.port(), "token", {}), 5s, true),
            "the connection was closed without an answer");
  const Server leaves(kAnswer.substr(0, 9) + std::string("\0\0\0\7\0\0\0\0\0", 9));
  EXPECT_EQ(why_silent(grpc_port("127.0.0.1", leaves.port(), "token", {}), 5s, true),
            "the answer is not the expected one");
}

TEST(SelfProbe, TheEntrancesOwnAnswerIsNoneOfTheServer) {
  const Server full("HTTP/1.1 503 Service Unavailable\r\n\r\n");
  EXPECT_EQ(why_silent(http_port("127.0.0.1", full.port(), "token", {}), 5s, true),
            "the answer is not the expected one");
}

TEST(SelfProbe, ConcludesNothingFromSilenceInACrowd) {
  const Server silent("...");
  std::atomic<int> asked = 0;
  auto port = http_port("127.0.0.1", silent.port(), "token", [] { ADD_FAILURE() << "opened again"; });
  port.is_crowded = [&] { return ++asked > 0; };
  const SelfProbe probe({port}, {.every = 5ms, .again = 5ms, .patience = 20ms},
                        [](const std::string& text) { ADD_FAILURE() << text; });
  const auto until = std::chrono::steady_clock::now() + 10s;
  while (asked <= 2 * SelfProbe::kMostFailures && std::chrono::steady_clock::now() < until)
    std::this_thread::sleep_for(5ms);
  EXPECT_GT(asked, 2 * SelfProbe::kMostFailures);
}

TEST(SelfProbe, IsContentWithWhatAnswers) {
  const Server grpc(kAnswer);
  const SelfProbe probe({grpc_port("127.0.0.1", grpc.port(), "token", [] { ADD_FAILURE() << "opened again"; })},
                        {.every = 5ms, .again = 5ms, .patience = 5s},
                        [](const std::string& text) { ADD_FAILURE() << text; });
  std::this_thread::sleep_for(100ms);
}

}  // namespace
}  // namespace net
