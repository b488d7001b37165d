// Goal: messages between ranks arrive whole and in order, and what goes wrong is an error on every rank.
// Method: ranks as threads, with real sockets on this machine.
#include "fsdp/comm/sockets/peer_sockets.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <latch>
#include <sstream>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include <ATen/ATen.h>
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/rank_threads.h"

namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using ::testing::HasSubstr;

/// Runs `body` on each rank. No rank leaves before all have ended `body`.
void run_peers(int ranks, const std::function<void(int rank, fsdp::PeerSockets&)>& body,
               milliseconds timeout = seconds(20)) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::latch ended(ranks);
  run_rank_threads(ranks, [&](int rank) {
    fsdp::PeerSockets sockets(*store, {rank, ranks, "127.0.0.1", timeout});
    body(rank, sockets);
    ended.arrive_and_wait();
  });
}

/// Numbers that tell where a message is from, and which it is.
at::Tensor message(int from, int to, int number, std::int64_t size) {
  return at::arange(size, at::kFloat) + (1000 * from + 100 * to + number);
}

// Some fit into the header's write, and others exceed what the kernel keeps for a socket.
constexpr std::int64_t kSizes[] = {1, 0, 7, 3'000'000, 16'000, 40'000, 2'000'000, 3};

TEST(PeerSockets, MessagesOfAnySizeArriveInOrder) {
  for (const bool receives_first : {true, false}) {
    run_peers(3, [&](int rank, fsdp::PeerSockets& sockets) {
      std::vector<fsdp::PeerSockets::Pending> pending;
      std::vector<std::pair<at::Tensor, at::Tensor>> got_and_wanted;
      const auto receive_all = [&] {
        for (int peer = 0; peer < 3; ++peer) {
          if (peer == rank) continue;
          for (std::uint64_t i = 0; i < std::size(kSizes); ++i) {
            const at::Tensor into = at::full({kSizes[i]}, -1.0F);
            pending.push_back(sockets.receive(peer, i, into));
            got_and_wanted.emplace_back(into, message(peer, rank, static_cast<int>(i), kSizes[i]));
          }
        }
      };
      if (receives_first) receive_all();
      for (std::uint64_t i = 0; i < std::size(kSizes); ++i) {
        for (int peer = 0; peer < 3; ++peer) {
          if (peer != rank)
            pending.push_back(sockets.send(peer, i, message(rank, peer, static_cast<int>(i), kSizes[i])));
        }
      }
      if (!receives_first) receive_all();
      for (const auto& transfer : pending) transfer->wait();
      for (const auto& [got, wanted] : got_and_wanted) EXPECT_TRUE(at::equal(got, wanted));
    });
  }
}

TEST(PeerSockets, AMessageWaitsForItsReceive) {
  std::latch sent(2);
  run_peers(2, [&](int rank, fsdp::PeerSockets& sockets) {
    if (rank == 0) {
      const auto first = sockets.send(1, 5, at::full({3}, 5.0F)), second = sockets.send(1, 6, at::full({3}, 6.0F));
      first->wait();
      second->wait();
      sent.arrive_and_wait();
      return;
    }
    sent.arrive_and_wait();
    const at::Tensor six = at::zeros({3}), five = at::zeros({3});
    const auto later = sockets.receive(0, 6, six);
    sockets.receive(0, 5, five)->wait();
    later->wait();
    EXPECT_TRUE(at::equal(five, at::full({3}, 5.0F)));
    EXPECT_TRUE(at::equal(six, at::full({3}, 6.0F)));
  });
}

TEST(PeerSockets, APeerThatLeavesIsAnErrorForThoseThatWaitForIt) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  run_rank_threads(3, [&](int rank) {
    fsdp::PeerSockets sockets(*store, {rank, 3, "127.0.0.1", seconds(20)});
    if (rank == 2) return;
    const at::Tensor into = at::zeros({4});
    const std::string error = error_of([&] { sockets.receive(2, 1, into)->wait(); });
    EXPECT_THAT(error, HasSubstr("connection"));
    EXPECT_THAT(error_of([&] { sockets.send(2, 1, into); }), HasSubstr("connection")) << "from now on at once";
    const auto sent = sockets.send(1 - rank, 7, at::full({4}, 1.0F * rank));
    sockets.receive(1 - rank, 7, into)->wait();
    sent->wait();
    EXPECT_TRUE(at::equal(into, at::full({4}, 1.0F - rank))) << "the others go on";
    static std::latch both(2);
    both.arrive_and_wait();
  });
}

TEST(PeerSockets, ATimeoutEndsTheWaitOfEveryPeer) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::latch ended(2);
  run_rank_threads(2, [&](int rank) {
    fsdp::PeerSockets sockets(*store, {rank, 2, "127.0.0.1", rank == 0 ? milliseconds(200) : milliseconds(60'000)});
    const at::Tensor into = at::zeros({4});
    EXPECT_THAT(error_of([&] { sockets.receive(1 - rank, 1, into)->wait(); }),
                HasSubstr(rank == 0 ? "timed out after 200 ms" : "the peer has closed the connection"));
    ended.arrive_and_wait();
  });
}

TEST(PeerSockets, AMessageWithAnotherTagOrSizeIsNotTaken) {
  run_peers(
      2,
      [](int rank, fsdp::PeerSockets& sockets) {
        const at::Tensor into = at::full({4}, -1.0F);
        const auto sent = sockets.send(1 - rank, rank == 0 ? 1 : 2, at::ones({rank == 0 ? 4 : 5}));
        const std::string error = error_of([&] { sockets.receive(1 - rank, rank == 0 ? 2 : 3, into)->wait(); });
        EXPECT_NE(error, "no error");
        EXPECT_TRUE(at::equal(into, at::full({4}, -1.0F)));
      },
      milliseconds(200));
}

/// Connects to the address in the store and says what a rank does not say.
int connect_as_stranger(c10d::Store& store) {
  const auto bytes = store.get("peer-0");
  std::istringstream text(std::string(bytes.begin(), bytes.end()));
  std::string secret;
  int port = 0;
  text >> secret >> port;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(static_cast<std::uint16_t>(port));
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const int fd = ::socket(AF_INET, SOCK_STREAM, 0);
  EXPECT_EQ(::connect(fd, reinterpret_cast<const sockaddr*>(&address), sizeof address), 0);
  const std::int64_t hello[2] = {1, 1};
  EXPECT_EQ(::send(fd, hello, sizeof hello, MSG_NOSIGNAL), static_cast<ssize_t>(sizeof hello));
  return fd;
}

TEST(PeerSockets, AStrangerIsNoPeer) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::latch ended(2);
  run_rank_threads(2, [&](int rank) {
    const int stranger = rank == 1 ? connect_as_stranger(*store) : -1;
    fsdp::PeerSockets sockets(*store, {rank, 2, "127.0.0.1", seconds(20)});
    const at::Tensor into = at::zeros({1});
    const auto sent = sockets.send(1 - rank, 1, at::full({1}, 10.0F + rank));
    sockets.receive(1 - rank, 1, into)->wait();
    sent->wait();
    EXPECT_EQ(into.item<float>(), 11.0F - rank);
    if (stranger >= 0) ::close(stranger);
    ended.arrive_and_wait();
  });
}

TEST(PeerSockets, APeerThatDoesNotComeIsAnErrorAfterTheTimeout) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  EXPECT_THAT(error_of([&] {
                fsdp::PeerSockets(*store, {0, 2, "127.0.0.1", milliseconds(50)});
              }),
              HasSubstr("waiting for later ranks: nobody within the timeout"));
}

}  // namespace
