// Goal: hosts agree along a tree: each collective gives what the full mesh of sockets gives, to the bit, with
// 2 (N-1) messages and log2(N) connections a rank; ranks pass messages on while they compute; and what goes wrong is an
// error on every rank. Method: ranks as threads, with real sockets on this machine and nobody who watches. Worlds of
// 64 and 512 ranks agree in tests/worker/train/agreement_test.cpp.
#include <ATen/ATen.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <bit>
#include <functional>
#include <latch>
#include <set>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "fsdp/comm/sockets/rank_tree.h"
#include "fsdp/comm/transport.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/rank_threads.h"

namespace {

using namespace std::chrono_literals;
using ::testing::AllOf;
using ::testing::HasSubstr;

/// log2, rounded up.
int most_connections(int ranks) {
  return std::bit_width(static_cast<unsigned>(ranks - 1));
}

TEST(RankTree, JoinsAllRanksWithFewConnections) {
  for (int n = 2; n <= 130; ++n) {
    std::set<std::pair<int, int>> edges;
    for (int rank = 0; rank < n; ++rank) {
      const fsdp::RankTree tree(rank, n);
      EXPECT_EQ(tree.begin, rank);
      EXPECT_LE(static_cast<int>(tree.neighbours().size()), most_connections(n));
      int next = rank + 1;
      for (const auto& child : tree.children) {
        EXPECT_EQ(child.rank, next) << "the nearest first, without a gap";
        EXPECT_EQ(fsdp::RankTree(child.rank, n).parent, rank);
        EXPECT_EQ(fsdp::RankTree(child.rank, n).end, child.end);
        next = child.end;
      }
      EXPECT_EQ(tree.end, next);
      for (const int other : tree.neighbours()) edges.emplace(std::min(rank, other), std::max(rank, other));
      for (int other = 0; other < n; ++other) {
        if (other == rank) continue;
        int at = rank, ways = 0;
        for (; at != other && ways < 100; ++ways) at = fsdp::RankTree(at, n).towards(other);
        EXPECT_LE(ways, 2 * most_connections(n)) << rank << " to " << other << " of " << n;
      }
    }
    EXPECT_EQ(static_cast<int>(edges.size()), n - 1);
  }
}

/// Runs `body` on each rank. None leaves before all have ended `body`, unless it destroys its transport.
using Ranked = std::unique_ptr<fsdp::Transport>;
void run_tree(int ranks, const std::function<void(int rank, Ranked&)>& body, std::chrono::milliseconds timeout = 30s) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::latch connected(ranks), ended(ranks);
  run_rank_threads(ranks, [&](int rank) {
    Ranked transport = fsdp::make_tree_transport(store, {rank, ranks, timeout, ""});
    connected.arrive_and_wait();
    try {
      body(rank, transport);
    } catch (...) {
      ended.count_down();
      throw;
    }
    ended.arrive_and_wait();
  });
}

/// Values whose sum has other bits in another order.
at::Tensor unlike_values(int rank, std::int64_t count) {
  return (at::arange(count).to(at::kFloat) * 0.37F + 1.0F / static_cast<float>(rank + 3)).sin() *
         (rank % 3 == 1 ? 1e4F : 1.0F);
}

at::Tensor sum_of_tree(int ranks, std::int64_t count) {
  std::vector<at::Tensor> parts;
  for (int rank = 0; rank < ranks; ++rank) parts.push_back(unlike_values(rank, count));
  const at::Tensor sum = at::empty({count});
  fsdp::tree_sum(parts, std::vector<bool>(parts.size(), false), sum);
  return sum;
}

constexpr int kWorlds[] = {2, 3, 4, 5, 7, 8, 13};
// The last one is more than a socket takes at once, and more than a piece of a sum.
constexpr std::int64_t kCounts[] = {1, 6, 200'000};

TEST(TreeTransport, SumsHaveTheBitsOfTheFullMesh) {
  for (const int n : kWorlds) {
    run_tree(n, [&](int rank, Ranked& ranks) {
      for (const std::int64_t count : kCounts) {
        const at::Tensor want = sum_of_tree(n, n * count), started = unlike_values(rank, n * count);
        const auto pending = ranks->start_all_reduce(started, "sum");
        at::Tensor waited = unlike_values(rank, n * count);
        ranks->all_reduce(waited, fsdp::Reduction::kSum);
        pending->wait();
        EXPECT_TRUE(at::equal(started, want)) << count;
        EXPECT_TRUE(at::equal(waited, want)) << count;
        const at::Tensor part = at::empty({count});
        ranks->reduce_scatter(unlike_values(rank, n * count), part, "part")->wait();
        EXPECT_TRUE(at::equal(part, want.narrow(0, rank * count, count))) << count;
      }
    });
  }
}

TEST(TreeTransport, GivesTheLargestAndWhatAnyRankHas) {
  for (const int n : kWorlds) {
    run_tree(n, [&](int rank, Ranked& ranks) {
      at::Tensor largest = at::full({2, 2}, static_cast<double>(rank), at::kDouble);
      ranks->all_reduce(largest, fsdp::Reduction::kMax);
      EXPECT_TRUE(at::equal(largest, at::full({2, 2}, n - 1.0, at::kDouble)));
      const at::Tensor any = at::zeros({n + 1}, at::kBool);
      any[rank] = true;
      ranks->start_all_reduce(any, "flags")->wait();
      EXPECT_EQ(any.sum().item<std::int64_t>(), n);
      EXPECT_FALSE(any[n].item<bool>());
    });
  }
}

TEST(TreeTransport, GathersAndBroadcastsFromEachRank) {
  for (const int n : kWorlds) {
    run_tree(n, [&](int rank, Ranked& ranks) {
      for (const std::int64_t count : kCounts) {
        const at::Tensor buffer = at::full({n * count}, -1.0F);
        buffer.narrow(0, rank * count, count).fill_(rank);
        ranks->all_gather_into(buffer, "parts")->wait();
        EXPECT_TRUE(at::equal(buffer, at::arange(n).to(at::kFloat).repeat_interleave(count))) << count;
      }
      for (int root = 0; root < n; ++root) {
        at::Tensor text = at::full({70'000}, static_cast<float>(rank));
        ranks->broadcast(text, root);
        EXPECT_TRUE(at::equal(text, at::full({70'000}, static_cast<float>(root)))) << root;
      }
      ranks->barrier();
    });
  }
}

TEST(TreeTransport, SendsTwoMessagesARankAndHasFewConnections) {
  constexpr int kRanks = 13;
  std::mutex mutex;
  std::int64_t all_reduce = 0, gather = 0, broadcast = 0, barrier = 0;
  run_tree(kRanks, [&](int rank, Ranked& ranks) {
    const auto sent_in = [&](const std::function<void()>& collective, std::int64_t& all) {
      const std::int64_t before = ranks->links().messages_sent;
      collective();
      const std::lock_guard<std::mutex> lock(mutex);
      all += ranks->links().messages_sent - before;
    };
    at::Tensor tensor = at::zeros({kRanks});
    sent_in([&] { ranks->all_reduce(tensor, fsdp::Reduction::kSum); }, all_reduce);
    sent_in([&] { ranks->all_gather_into(tensor, "all")->wait(); }, gather);
    sent_in([&] { ranks->broadcast(tensor, 7); }, broadcast);
    sent_in([&] { ranks->barrier(); }, barrier);
    EXPECT_EQ(ranks->links().connections, static_cast<int>(fsdp::RankTree(rank, kRanks).neighbours().size()));
  });
  EXPECT_EQ(all_reduce, 2 * (kRanks - 1));
  EXPECT_EQ(gather, 2 * (kRanks - 1));
  EXPECT_EQ(broadcast, kRanks - 1);
  EXPECT_EQ(barrier, 2 * (kRanks - 1));
}

// An agreement is started before a backward and read after it.
TEST(TreeTransport, RanksThatComputePassOnWhatOthersWaitFor) {
  constexpr int kRanks = 9;
  std::latch has_it(1);
  run_tree(kRanks, [&](int rank, Ranked& ranks) {
    const at::Tensor one = at::ones({1});
    const auto pending = ranks->start_all_reduce(one, "loss");
    if (rank == 3) {  // a leaf
      pending->wait();
      EXPECT_EQ(one.item<float>(), kRanks);
      has_it.count_down();
    }
    has_it.wait();  // the others compute
    if (rank != 3) pending->wait();
    EXPECT_EQ(one.item<float>(), kRanks);
  });
}

// Rank 2 starts its second collective while the first waits for rank 3. Its parent does not know the second one yet.
TEST(TreeTransport, CollectivesOfARankHaveTheOrderOfTheirStartsOnEachConnection) {
  std::latch started(1);
  run_tree(
      4,
      [&](int rank, Ranked& ranks) {
        const at::Tensor first = at::ones({1});
        at::Tensor second = at::full({1}, static_cast<float>(rank));
        if (rank == 3) started.wait();
        const auto pending = ranks->start_all_reduce(first, "first");
        if (rank != 2) pending->wait();
        if (rank == 2) started.count_down();
        ranks->broadcast(second, 2);
        if (rank == 2) pending->wait();
        EXPECT_EQ(first.item<float>(), 4);
        EXPECT_EQ(second.item<float>(), 2);
      },
      10s);
}

TEST(TreeTransport, ARankThatLeavesIsAnErrorForAll) {
  for (const int leaves : {0, 3, 4}) {
    const auto begin = std::chrono::steady_clock::now();
    run_tree(6, [&](int rank, Ranked& ranks) {
      ranks->barrier();
      if (rank == leaves) return ranks.reset();
      const std::string error = error_of([&] { ranks->barrier(); });
      EXPECT_THAT(error, AllOf(HasSubstr("barrier on rank " + std::to_string(rank) + " with rank "),
                               HasSubstr("failed (did it die"), HasSubstr("connection")));
      EXPECT_THAT(error_of([&] { ranks->start_all_reduce(at::zeros({2}), "next")->wait(); }),
                  HasSubstr("all-reduce of next on rank " + std::to_string(rank) + " with rank "))
          << "the failure is final";
    });
    EXPECT_LT(std::chrono::steady_clock::now() - begin, 15s) << leaves;
  }
}

TEST(TreeTransport, AnAbortEndsWhatIsUnderWayWithItsReason) {
  run_tree(5, [&](int rank, Ranked& ranks) {
    if (rank == 3) return;  // it does not come
    std::thread watcher([&] {
      std::this_thread::sleep_for(20ms);
      ranks->abort("the watcher's verdict");
    });
    EXPECT_THAT(error_of([&] { ranks->barrier(); }), HasSubstr("barrier on rank "));
    watcher.join();
    EXPECT_NE(error_of([&] { ranks->barrier(); }), "no error");
  });
}

TEST(TreeTransport, ATimeoutNamesTheRankThatIsWaitedFor) {
  run_tree(
      2,
      [&](int rank, Ranked& ranks) {
        if (rank == 1) return;
        EXPECT_THAT(error_of([&] { ranks->barrier(); }),
                    AllOf(HasSubstr("barrier on rank 0 with rank 1 failed"), HasSubstr("timed out after 200 ms")));
      },
      200ms);
}

TEST(TreeTransport, AnotherCallOfARankIsNeverTaken) {
  run_tree(
      4,
      [&](int rank, Ranked& ranks) {
        at::Tensor mine = at::full({4}, static_cast<float>(rank));
        const std::string error = error_of([&] {
          if (rank == 1) return ranks->start_all_reduce(mine, "another")->wait();
          ranks->start_all_reduce(mine, "one")->wait();
        });
        EXPECT_THAT(error, HasSubstr("all-reduce of "));
        if (rank != 2) {
          EXPECT_TRUE(at::equal(mine, at::full({4}, static_cast<float>(rank))));
        }
      },
      300ms);
}

}  // namespace
