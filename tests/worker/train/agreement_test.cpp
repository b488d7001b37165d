// Goal: in each step all ranks get the same words: sums, the strongest stop, one trace. At any number of ranks that
// costs 2 (N-1) messages, and a rank has log2(N) connections. Method: ranks as threads over real sockets, without a
// model. bench/agreement.py does the same with a process a rank.
#include "worker/train/agreement.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <bit>
#include <functional>
#include <latch>
#include <torch/csrc/distributed/c10d/HashStore.hpp>

#include "base/fd.h"
#include "fsdp/comm/transport.h"
#include "tests/fsdp/rank_threads.h"

namespace worker::testing {
namespace {

using agent::rank::StopKind;
using agent::rank::TraceWish;

/// Runs `body` on each rank of a world whose hosts agree over sockets.
void run_hosts(int ranks, const std::function<void(int rank, fsdp::Communicator&)>& body) {
  const base::OpenFiles before = base::raise_open_files_limit();  // both ends of each connection are in this process
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::latch ended(ranks);
  run_rank_threads(ranks, [&](int rank) {
    fsdp::Communicator hosts(rank, ranks, c10::kCPU,
                             fsdp::make_tree_transport(store, {rank, ranks, std::chrono::seconds(120), ""}));
    try {
      body(rank, hosts);
    } catch (...) {
      ended.count_down();
      throw;
    }
    ended.arrive_and_wait();
  });
  base::set_open_files(before.soft);
}

Agreement words_of(int rank, int step) {
  Agreement words;
  words.losses = {rank + 0.5 * step, 2.0 * rank};
  words.next_weight = 1;
  words.next_tokens = 10.0 * rank;
  return words;
}

TEST(Agreement, SumsAndTakesTheStrongestStop) {
  constexpr int kRanks = 5;
  struct Case {
    StopKind of_rank_2, of_rank_4, agreed;
  };
  const std::vector<Case> cases{{StopKind::kNone, StopKind::kNone, StopKind::kNone},
                                {StopKind::kSave, StopKind::kNone, StopKind::kSave},
                                {StopKind::kSave, StopKind::kSave, StopKind::kSave},
                                {StopKind::kSave, StopKind::kNow, StopKind::kNow},
                                {StopKind::kNow, StopKind::kNone, StopKind::kNow}};
  run_hosts(kRanks, [&](int rank, fsdp::Communicator& hosts) {
    for (const Case& one : cases) {
      Agreement mine = words_of(rank, 1);
      if (rank == 2) mine.stop = one.of_rank_2;
      if (rank == 4) mine.stop = one.of_rank_4;
      const Agreement agreed = AgreementUnderWay(hosts, mine).wait();
      EXPECT_EQ(agreed.losses, (std::vector<double>{12.5, 20}));
      EXPECT_EQ(agreed.next_weight, kRanks);
      EXPECT_EQ(agreed.next_tokens, 100);
      EXPECT_EQ(agreed.stop, one.agreed);
      EXPECT_EQ(agreed.trace, TraceWish());
    }
  });
}

// The words of one rank, never a mixture of two ranks' words.
TEST(Agreement, TakesTheNewestTraceThatARankHasHeardOf) {
  run_hosts(4, [&](int rank, fsdp::Communicator& hosts) {
    Agreement mine = words_of(rank, 0);
    if (rank == 1) mine.trace = {.number = 7, .first = 900, .steps = 5};
    if (rank == 3) mine.trace = {.number = 8, .first = 20, .steps = 1};
    EXPECT_EQ(AgreementUnderWay(hosts, mine).wait().trace, (TraceWish{.number = 8, .first = 20, .steps = 1}));
    mine.trace = {};
    EXPECT_EQ(AgreementUnderWay(hosts, mine).wait().trace, TraceWish());
  });
}

void agree_for(int ranks, int steps) {
  std::atomic<std::int64_t> messages = 0;
  run_hosts(ranks, [&](int rank, fsdp::Communicator& hosts) {
    EXPECT_LE(hosts.links().connections, std::bit_width(static_cast<unsigned>(ranks - 1)));
    const std::int64_t before = hosts.links().messages_sent;
    for (int step = 0; step < steps; ++step) {
      const Agreement agreed = AgreementUnderWay(hosts, words_of(rank, step)).wait();
      ASSERT_EQ(agreed.losses[1], static_cast<double>(ranks) * (ranks - 1));
      ASSERT_EQ(agreed.next_weight, ranks);
    }
    messages += hosts.links().messages_sent - before;
  });
  EXPECT_EQ(messages, std::int64_t{2} * (ranks - 1) * steps);
}

TEST(Agreement, OfAWorldOf64TakesTwoMessagesARankAndSixConnections) {
  agree_for(64, 20);
}

TEST(AgreementOf512Ranks, TakesTwoMessagesARankForAThousandSteps) {
  agree_for(512, 1000);
}

}  // namespace
}  // namespace worker::testing
