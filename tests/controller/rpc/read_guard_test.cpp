// Goal: whoever has one rank's token makes musterd keep little, and shuts nobody else out.
// Method: a real server, connections made by hand, and the guard by itself on pairs of sockets.
#include "controller/rpc/read_guard.h"

#include <arpa/inet.h>
#include <poll.h>
#include <sys/socket.h>

#include "base/fd.h"
#include "tests/controller/net/http2.h"
#include "tests/controller/rpc/harness.h"

namespace {

using namespace rpc::testing;  // NOLINT
using net::testing::frame;
using net::testing::headers;
using net::testing::kHello;

muster::v1::HeartbeatRequest beat_of(std::uint32_t rank) {
  muster::v1::HeartbeatRequest request;
  request.mutable_key()->set_job_id(1);
  request.mutable_key()->set_attempt(1);
  request.mutable_key()->set_rank(rank);
  return request;
}

/// A connection made by hand.
class Wire {
 public:
  explicit Wire(int port) : socket_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_port = htons(static_cast<std::uint16_t>(port));
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    if (::connect(socket_.get(), reinterpret_cast<const sockaddr*>(&to), sizeof to) != 0) socket_.reset();
  }
  /// False: the other side is gone.
  bool say(const std::string& bytes) const {
    return ::send(socket_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL) == static_cast<ssize_t>(bytes.size());
  }
  /// Reads until the server closes the connection, or it has been quiet for `time`. True: it is closed.
  bool is_closed_within(std::chrono::milliseconds time) const {
    std::array<char, 4096> bytes;
    pollfd wanted{socket_.get(), POLLIN, 0};
    while (::poll(&wanted, 1, static_cast<int>(time.count())) > 0) {
      if (::recv(socket_.get(), bytes.data(), bytes.size(), 0) <= 0) return true;
    }
    return false;
  }

 private:
  base::Fd socket_;
};

std::string call(std::uint32_t stream, const char* method) {
  return headers(stream, std::string("/muster.v1.RankService/") + method, FakeController::kRankToken);
}
/// The beginning of a message that claims `size` bytes.
std::string begin_of(std::uint32_t stream, std::uint32_t size, const std::string& bytes) {
  std::string prefix(1, '\0');
  for (int shift = 24; shift >= 0; shift -= 8) prefix += static_cast<char>(size >> shift & 0xFF);
  return frame(0, 0, stream, prefix + bytes);
}
std::string whole(std::uint32_t stream, const std::string& bytes) {
  return begin_of(stream, static_cast<std::uint32_t>(bytes.size()), bytes);
}

class Guarded : public Rpc {
 protected:
  /// A connection with an open stream of heartbeats that has been answered: the rank's `times`th.
  Wire rank(std::uint32_t number = 0, int times = 1) {
    Wire wire(server_->port());
    EXPECT_TRUE(wire.say(kHello + call(1, "Beat") + whole(1, beat_of(number).SerializeAsString())));
    EXPECT_TRUE(controller_.wait_until([&](const FakeController& c) {
      const auto found = c.heartbeats.find(number);
      return found != c.heartbeats.end() && found->second >= times;
    }));
    return wire;
  }
  /// Another rank is served all the same.
  void expect_others_are_served() {
    Call call(FakeController::kRankToken);
    muster::v1::HeartbeatResponse response;
    EXPECT_TRUE(ranks_->Heartbeat(&call, beat_of(99), &response).ok());
  }
};

TEST_F(Guarded, AMessageOfFourGigabytesEndsItsConnectionAtItsFirstBytes) {
  const auto wire = rank();
  ASSERT_TRUE(wire.say(begin_of(1, 0xFFFFFFF0, "x")));
  EXPECT_TRUE(wire.is_closed_within(10s));
  EXPECT_TRUE(controller_.wait_until([](const FakeController& c) { return c.streams_closed == 1; }));
  expect_others_are_served();
}

TEST_F(Guarded, CallsWithoutAMessageAreFewOnAConnectionThatAcknowledgesNothing) {
  const auto wire = rank();
  std::string calls;
  for (std::uint32_t i = 1; i <= rpc::kMaxCallsOfRanksConnection; ++i) calls += call(2 * i + 1, "Heartbeat");
  ASSERT_TRUE(wire.say(calls));
  EXPECT_FALSE(wire.is_closed_within(300ms)) << "so many may wait, for a time";
  ASSERT_TRUE(wire.say(call(2 * rpc::kMaxCallsOfRanksConnection + 3, "Heartbeat")));
  EXPECT_TRUE(wire.is_closed_within(10s));
  expect_others_are_served();
}

TEST_F(Guarded, OpenCallsAreFewOnAConnectionThatAcknowledgesNothing) {
  const auto wire = rank();
  muster::v1::RendezvousRequest waits;
  *waits.mutable_key() = beat_of(1).key();
  std::string calls;
  for (std::uint32_t i = 1; i <= rpc::kMaxCallsOfRanksConnection; ++i) {
    calls += call(2 * i + 1, "Rendezvous") + net::testing::data(2 * i + 1, waits.SerializeAsString());
  }
  ASSERT_TRUE(wire.say(calls));
  EXPECT_TRUE(wire.is_closed_within(10s)) << "with the stream that is one too many";
  expect_others_are_served();
}

TEST_F(Guarded, ACompressedMessageEndsItsConnection) {
  const auto wire = rank();
  ASSERT_TRUE(wire.say(frame(0, 0, 1, std::string("\1\0\0\0\4", 5) + "gzip")));
  EXPECT_TRUE(wire.is_closed_within(10s));
}

TEST_F(Guarded, ARankHasEightConnections) {
  std::vector<Wire> wires;
  for (std::size_t i = 1; i <= rpc::ReadGuard::kMostOfRank; ++i) wires.push_back(rank(5, static_cast<int>(i)));
  const Wire ninth(server_->port());
  ASSERT_TRUE(ninth.say(kHello + call(1, "Beat") + whole(1, beat_of(5).SerializeAsString())));
  EXPECT_TRUE(ninth.is_closed_within(10s)) << "with an answer of the gate";
  const auto other = rank(6);
  wires.clear();
  const auto until = Clock::now() + 10s;
  bool is_in = false;
  while (!is_in && Clock::now() < until) {
    const Wire again(server_->port());
    again.say(kHello + call(1, "Beat") + whole(1, beat_of(5).SerializeAsString()));
    is_in = !again.is_closed_within(100ms);
  }
  EXPECT_TRUE(is_in) << "places come free";
}

/// The guard by itself, with the sockets of a loopback connection.
class Watching : public ::testing::Test {
 protected:
  struct Pair {
    base::Fd ours, theirs;
  };
  static Pair connection() {
    const base::Fd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in at{};
    at.sin_family = AF_INET;
    at.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof at;
    EXPECT_EQ(::bind(listener.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    EXPECT_EQ(::listen(listener.get(), 1), 0);
    EXPECT_EQ(::getsockname(listener.get(), reinterpret_cast<sockaddr*>(&at), &size), 0);
    Pair pair;
    pair.theirs = base::Fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    EXPECT_EQ(::connect(pair.theirs.get(), reinterpret_cast<const sockaddr*>(&at), sizeof at), 0);
    pair.ours = base::Fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
    return pair;
  }
  /// Reads as gRPC does.
  static ssize_t read(const base::Fd& socket) {
    std::array<char, 65536> bytes;
    iovec vector{bytes.data(), bytes.size()};
    msghdr message{};
    message.msg_iov = &vector;
    message.msg_iovlen = 1;
    return ::recvmsg(socket.get(), &message, 0);
  }
  static ssize_t pass(const Pair& pair, const std::string& bytes) {
    EXPECT_EQ(::send(pair.theirs.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL), static_cast<ssize_t>(bytes.size()));
    return read(pair.ours);
  }
  static std::string peer_of(const Pair& pair) {
    sockaddr_in at{};
    socklen_t size = sizeof at;
    ::getsockname(pair.theirs.get(), reinterpret_cast<sockaddr*>(&at), &size);
    return "ipv4:127.0.0.1:" + std::to_string(ntohs(at.sin_port));
  }

  static constexpr std::size_t kMessage = std::size_t{1} << 20;
  rpc::ReadGuard guard_{{{kMessage, 2 * kMessage, 4, 4096, 10s}, std::size_t{200} << 10}};
  const rpc::Inspector::Time start_ = rpc::Inspector::Time::clock::now();
  const rpc::RankOf rank_{{7, 1}, 0};
};

TEST_F(Watching, ForgetsAConnectionWhoseEndWasRead) {
  auto pair = connection();
  ASSERT_TRUE(guard_.watch(pair.ours.get(), kHello, rank_, start_));
  EXPECT_EQ(guard_.counts().open, 1U);
  EXPECT_EQ(pass(pair, "abc"), 3);
  pair.theirs.reset();
  EXPECT_EQ(read(pair.ours), 0);
  EXPECT_EQ(guard_.counts().open, 0U);
}

TEST_F(Watching, ForgetsAConnectionThatWasClosedHere) {
  auto pair = connection();
  ASSERT_TRUE(guard_.watch(pair.ours.get(), kHello, rank_, start_));
  pair.ours.reset();
  guard_.sweep(start_);
  EXPECT_EQ(guard_.counts().open, 0U);
}

TEST_F(Watching, NeverShutsASocketThatHasTheNumberOfAClosedOne) {
  const auto old = connection();
  ASSERT_TRUE(guard_.watch(old.ours.get(), kHello, rank_, start_));
  const auto pair = connection();
  ASSERT_EQ(::dup2(pair.ours.get(), old.ours.get()), old.ours.get());
  const auto wrong = call(1, "Beat") + begin_of(1, 0xFFFFFFF0, "x");
  ASSERT_GT(::send(pair.theirs.get(), wrong.data(), wrong.size(), MSG_NOSIGNAL), 0);
  EXPECT_GT(read(old.ours), 0) << "what it says is nobody's business";
  EXPECT_EQ(guard_.counts().open, 0U);
}

TEST_F(Watching, ShutsWhoseMessageDoesNotCome) {
  const auto slow = connection(), steady = connection();
  ASSERT_TRUE(guard_.watch(slow.ours.get(), kHello, rank_, start_));
  ASSERT_TRUE(guard_.watch(steady.ours.get(), kHello, rank_, start_));
  guard_.heard(guard_.find(peer_of(slow)));
  guard_.heard(guard_.find(peer_of(steady)));
  EXPECT_GT(pass(slow, call(1, "Beat")), 0);
  EXPECT_GT(pass(steady, call(1, "Beat") + whole(1, "beat")), 0);
  guard_.sweep(rpc::Inspector::Time::clock::now());
  EXPECT_EQ(guard_.counts().open, 2U);
  guard_.sweep(rpc::Inspector::Time::clock::now() + 1h);
  EXPECT_EQ(guard_.counts().open, 1U);
  EXPECT_EQ(read(slow.ours), 0) << "gRPC sees its end";
  EXPECT_GT(pass(steady, whole(1, "beat")), 0);
}

TEST_F(Watching, ShutsWhomTheControllerHasNotHeardInTime) {
  const auto pair = connection();
  ASSERT_TRUE(guard_.watch(pair.ours.get(), kHello + call(1, "Beat") + whole(1, "beat"), rank_, start_));
  EXPECT_EQ(guard_.counts().on_trial, 1U);
  guard_.sweep(start_ + rpc::ReadGuard::kTrial);
  EXPECT_EQ(guard_.counts().open, 1U);
  guard_.sweep(start_ + rpc::ReadGuard::kTrial + 1s);
  EXPECT_EQ(guard_.counts().open, 0U);
  EXPECT_EQ(guard_.counts().on_trial, 0U);
}

TEST_F(Watching, TurnsAwayWhoeverIsOnTrialInCrowds) {
  std::vector<Pair> pairs;
  for (std::size_t i = 0; i < rpc::ReadGuard::kMostOnTrial; ++i) {
    const rpc::RankOf rank{{7, 1}, static_cast<std::uint32_t>(i)};
    ASSERT_EQ(guard_.why_full(rank, start_), "");
    pairs.push_back(connection());
    ASSERT_TRUE(guard_.watch(pairs.back().ours.get(), kHello, rank, start_));
  }
  EXPECT_TRUE(guard_.why_full({{7, 1}, 9999}, start_).starts_with("max_connections_of_attempt: 256 connections"));
  EXPECT_EQ(guard_.why_full({{8, 1}, 0}, start_), "") << "another attempt has its own";
  guard_.heard(guard_.find(peer_of(pairs[3])));
  EXPECT_EQ(guard_.why_full({{7, 1}, 9999}, start_), "");
}

TEST_F(Watching, KeepsARankOutsideForAMomentAfterItBrokeALimit) {
  const auto pair = connection();
  ASSERT_TRUE(guard_.watch(pair.ours.get(), kHello, rank_, start_));
  EXPECT_EQ(pass(pair, call(1, "Beat") + begin_of(1, 0xFFFFFFF0, "x")), 0);
  const auto now = rpc::Inspector::Time::clock::now();
  EXPECT_TRUE(guard_.why_full(rank_, now).starts_with("max_connections_of_rank: a connection of rank 0 broke a limit"));
  EXPECT_EQ(guard_.why_full({rank_.attempt, 1}, now), "") << "its neighbours go on";
  EXPECT_EQ(guard_.why_full(rank_, now + rpc::ReadGuard::kOutside), "");
}

// Goal: many connections hold little together. Method: each has less than a message may have, all have more than they
// may.
TEST_F(Watching, ShutsWhoHasMostWhenAllTogetherHaveTooMuch) {
  const auto small = connection(), first = connection(), second = connection();
  const auto begin = kHello + call(1, "Beat") + begin_of(1, kMessage, std::string(1000, 'x'));
  ASSERT_TRUE(guard_.watch(small.ours.get(), begin, rank_, start_));
  ASSERT_TRUE(guard_.watch(first.ours.get(), begin, rank_, start_));
  ASSERT_TRUE(guard_.watch(second.ours.get(), begin, rank_, start_));
  const auto more = frame(0, 0, 1, std::string(16'000, 'x'));
  std::size_t sent = 0;
  while (pass(first, more) > 0 && pass(second, more) > 0 && sent < kMessage) sent += 2 * more.size();
  EXPECT_LT(sent, std::size_t{200} << 10);
  EXPECT_GT(sent, std::size_t{150} << 10);
  EXPECT_EQ(guard_.counts().open, 2U);
  EXPECT_GT(pass(small, more), 0) << "who has little goes on";
  EXPECT_LT(guard_.counts().held, std::size_t{200} << 10);
}

}  // namespace
