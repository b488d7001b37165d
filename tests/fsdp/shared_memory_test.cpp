// Goal: ranks of one node read each other's memory and never a byte that is not meant for them, whoever is late, wrong
// or gone. tests/fsdp/mesh_test.cpp has what holds for every transport.
// Method: ranks as threads, and a store that tells a rank something else. tests/fsdp/killed_rank_test.cpp has
// processes.
#include <ATen/ATen.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <atomic>
#include <fstream>
#include <latch>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>

#include "fsdp/comm/buffer_pool.h"
#include "fsdp/comm/node/node.h"
#include "fsdp/comm/node/shared_file.h"
#include "fsdp/comm/transport.h"
#include "tests/fsdp/error_of.h"
#include "tests/fsdp/ranks.h"

namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::chrono::milliseconds kLong = std::chrono::seconds(30);

/// Lines of this process's memory map that are of ranks' files.
int mapped_files() {
  std::ifstream maps("/proc/self/maps");
  int found = 0;
  for (std::string line; std::getline(maps, line);) found += line.find("memfd:fsdp") != std::string::npos;
  return found;
}

TEST(SharedMemory, ServesRanksOfOneNode) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    EXPECT_NE(mesh.shard().peer_memory(), nullptr);
    EXPECT_NE(mesh.control().peer_memory(), nullptr);
  });
}

TEST(SharedMemory, IsNotUsedWhenTheMeshIsNotTo) {
  run_ranks(
      2, [](fsdp::DeviceMesh& mesh) { EXPECT_EQ(mesh.shard().peer_memory(), nullptr); }, kLong, c10::kCPU, {}, false);
}

TEST(SharedMemory, IsUnmappedWithMeshAndPools) {
  const int before = mapped_files();
  run_ranks(3, [](fsdp::DeviceMesh& mesh) {
    fsdp::BufferPool pool(c10::kCPU, mesh.shard().peer_memory());
    const at::Tensor buffer = pool.tensor(3000, at::kFloat);
    mesh.shard().all_gather_into(buffer)->wait();
    EXPECT_GT(mapped_files(), 0);
    mesh.control().barrier();
  });
  EXPECT_EQ(mapped_files(), before);
}

TEST(SharedMemory, OfAPoolOutlivesTheMesh) {
  std::unique_ptr<fsdp::BufferPool> pool;
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    if (mesh.rank() == 0) pool = std::make_unique<fsdp::BufferPool>(c10::kCPU, mesh.shard().peer_memory());
    mesh.control().barrier();
  });
  for (int i = 0; i < 2; ++i) EXPECT_EQ(pool->tensor(100, at::kFloat).fill_(2).sum().item<double>(), 200);
}

// A collective of such memory sends it from where it is; of other memory, a copy.
TEST(SharedMemory, OfPoolsAndOtherTensorsGiveTheSameResults) {
  for (const int world_size : {2, 3, 4, 5}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      const int n = mesh.world_size(), rank = mesh.rank();
      fsdp::BufferPool pool(c10::kCPU, mesh.shard().peer_memory());
      for (const auto dtype : {at::kFloat, at::kBFloat16}) {
        // More elements than are summed at one time.
        for (const std::int64_t chunk : {1, 70'001}) {
          for (int round = 0; round < 3; ++round) {
            const at::Tensor first = pool.tensor(n * chunk, dtype);
            const at::Tensor place = first.narrow(0, rank * chunk, chunk);
            place.copy_(at::arange(chunk).to(at::kFloat).mul_(0.37).add_(rank + round + 1).sin_());
            const at::Tensor second = first.clone();
            mesh.shard().all_gather_into(first)->wait();
            mesh.shard().all_gather_into(second)->wait();
            EXPECT_TRUE(at::equal(first, second));
            const at::Tensor summed = at::empty({chunk}, dtype), also_summed = at::empty({chunk}, dtype);
            const at::Tensor input = pool.tensor(n * chunk, dtype);
            input.copy_(second).mul_(rank + 1);
            mesh.shard().reduce_scatter(input, summed)->wait();
            mesh.shard().reduce_scatter(input.clone(), also_summed)->wait();
            EXPECT_TRUE(at::equal(summed, also_summed));
            EXPECT_NE(summed.to(at::kFloat).abs().sum().item<double>(), 0);
          }
        }
      }
    });
  }
}

// The second rank never takes its part of the gather, so the first must not overwrite its own.
TEST(SharedMemory, IsNotGivenAgainWhileAPeerReadsIt) {
  std::latch first_tried(1);
  run_ranks(
      2,
      [&](fsdp::DeviceMesh& mesh) {
        fsdp::BufferPool pool(c10::kCPU, mesh.shard().peer_memory());
        auto gather = mesh.shard().all_gather_into(pool.tensor(4, at::kFloat), "layer 1");
        if (mesh.rank() == 1) return first_tried.wait();
        gather->wait();
        gather.reset();  // it holds the buffer
        const std::string error = error_of([&] { pool.tensor(4, at::kFloat); });
        EXPECT_THAT(error, AllOf(HasSubstr("the reuse of memory of an earlier collective on rank 0 with rank 1 failed"),
                                 HasSubstr("rank 1 did not come within 1000 ms")));
        first_tried.count_down();
      },
      std::chrono::seconds(1));
}

// Two buffers of one region: the second rank reads the first of them for ever, and the other serves meanwhile.
TEST(SharedMemory, IsGivenAgainBesideWhatAPeerReads) {
  std::latch first_tried(1);
  run_ranks(
      2,
      [&](fsdp::DeviceMesh& mesh) {
        fsdp::BufferPool pool(c10::kCPU, mesh.shard().peer_memory());
        pool.reserve(256);
        at::Tensor one = pool.tensor(32, at::kFloat), other = pool.tensor(32, at::kFloat);
        auto gather = mesh.shard().all_gather_into(one, "layer 1");
        if (mesh.rank() == 1) return first_tried.wait();
        gather->wait();
        gather.reset();
        const void* place = other.const_data_ptr();
        other.reset();
        other = pool.tensor(32, at::kFloat);
        EXPECT_EQ(other.const_data_ptr(), place);
        one.reset();
        EXPECT_THAT(error_of([&] { pool.tensor(32, at::kFloat); }), HasSubstr("rank 1 did not come within 1000 ms"));
        first_tried.count_down();
      },
      std::chrono::seconds(1));
}

TEST(SharedMemory, ADifferentCallIsToldAtOnceOnBothRanks) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {  // with half a minute to wait for peers
    const auto begin = std::chrono::steady_clock::now();
    const std::string mine = mesh.rank() == 0 ? "layer 1" : "layer 2", theirs = mesh.rank() == 0 ? "2" : "1";
    const at::Tensor buffer = at::zeros({8});
    const std::string error = error_of([&] { mesh.shard().all_gather_into(buffer, mine)->wait(); });
    EXPECT_THAT(error, HasSubstr("all-gather of " + mine + " on rank"));
    EXPECT_THAT(error, HasSubstr("calls all-gather of layer " + theirs + " (16 bytes a rank) here"));
    EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(10));
    EXPECT_THAT(error_of([&] { mesh.shard().barrier(); }), HasSubstr("calls all-gather of layer " + theirs))
        << "the first failure is final";
  });
}

TEST(SharedMemory, ALatePeerIsNamedAfterTheTimeout) {
  std::latch told(1);
  run_ranks(
      2,
      [&](fsdp::DeviceMesh& mesh) {
        if (mesh.rank() == 1) return told.wait();
        EXPECT_THAT(error_of([&] { mesh.shard().barrier(); }), AllOf(HasSubstr("barrier on rank 0 with rank 1 failed"),
                                                                     HasSubstr("rank 1 did not come within 1000 ms")));
        told.count_down();
      },
      std::chrono::seconds(1));
}

TEST(SharedMemory, ARankThatGivesUpTellsItsReasonToTheOthers) {
  run_ranks(3, [](fsdp::DeviceMesh& mesh) {
    if (mesh.rank() == 2) return;
    const std::string error = error_of([&] {
      // Rank 0 learns of rank 2's end from rank 2, or from rank 1 that has learnt of it.
      for (int i = 0; i < 3; ++i) mesh.shard().barrier();
    });
    EXPECT_THAT(error, HasSubstr("rank 2 has left: its mesh was destroyed"));
  });
}

// A collective that was started may be dropped after a failure elsewhere. It must not block what comes later.
TEST(SharedMemory, ManyDroppedCollectivesBlockNothing) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    const at::Tensor buffer = at::zeros({8}), part = at::zeros({4});
    for (int i = 0; i < 700; ++i) {
      mesh.shard().all_gather_into(buffer);
      mesh.shard().reduce_scatter(buffer, part);
    }
    EXPECT_EQ(mesh.shard().all_reduce(1.0), 2);
  });
}

TEST(SharedMemory, ACollectiveThatIsKeptAfterItsWaitBlocksNothing) {
  for (const int world_size : {2, 3}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      const at::Tensor large = at::ones({6000});  // summed in shares by three ranks
      auto kept = mesh.shard().start_all_reduce(large);
      kept->wait();
      // The next two calls with the posts of the first two end before the first are dropped.
      const auto reuse = [&] {
        for (int i = 0; i < 512; ++i) mesh.shard().barrier();
      };
      reuse();
      kept.reset();
      reuse();
      EXPECT_EQ(mesh.shard().all_reduce(1.0), mesh.world_size());
    });
  }
}

/// A store that gives a rank another value for one key.
class LyingStore : public c10d::PrefixStore {
 public:
  LyingStore(c10::intrusive_ptr<c10d::Store> store, std::string key, std::string value)
      : PrefixStore("lied", std::move(store)), key_(std::move(key)), value_(value.begin(), value.end()) {}
  std::vector<std::uint8_t> get(const std::string& key) override {
    return key == key_ ? value_ : PrefixStore::get(key);
  }

 private:
  std::string key_;
  std::vector<std::uint8_t> value_;
};

/// How many of three ranks share memory when rank 1 reads `value` under `key`.
int sharing_when_lied_to(const std::string& key, const std::string& value) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  std::atomic<int> sharing = 0;
  run_rank_threads(3, [&](int rank) {
    const auto mine = c10::make_intrusive<LyingStore>(store, rank == 1 ? key : "", value);
    if (fsdp::make_shared_memory_transport(mine, {rank, 3, kLong, ""})) ++sharing;
  });
  return sharing;
}

// Rank 0 may serve the store, and other ranks may still read their answers there.
TEST(SharedMemory, KeepsTheStoreThatItsRanksMetAt) {
  const auto store = c10::make_intrusive<c10d::HashStore>();
  run_rank_threads(2, [&](int rank) {
    auto mine = c10::make_intrusive<c10d::PrefixStore>("mesh", store);
    const auto transport = fsdp::make_shared_memory_transport(mine, {rank, 2, kLong, ""});
    EXPECT_EQ(mine.use_count(), 2);
  });
}

TEST(SharedMemory, IsUsedByAllRanksOfAGroupOrByNone) {
  EXPECT_EQ(sharing_when_lied_to("", ""), 3);
  EXPECT_EQ(sharing_when_lied_to("host of rank 0", "another"), 0) << "a rank of another node";
  const auto me = fsdp::node::Node(0, 3, kLong).card();
  EXPECT_EQ(sharing_when_lied_to("card of rank 0", me.host + " " + std::to_string(me.pid) + " 100000 1"), 0)
      << "a process that hides its files";
  const std::string zero = std::to_string(::open("/dev/zero", O_RDONLY | O_CLOEXEC));
  EXPECT_EQ(sharing_when_lied_to("card of rank 0", me.host + " " + std::to_string(me.pid) + " " + zero + " 1"), 0)
      << "another file of that number";
}

TEST(SharedMemory, IsNotUsedWhereFilesMayNotBeLarge) {
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &before), 0);
  const rlimit small{1 << 20, before.rlim_max};
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &small), 0);
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    EXPECT_EQ(mesh.shard().peer_memory(), nullptr);
    EXPECT_EQ(mesh.shard().all_reduce(1.0), 2) << "over sockets";
  });
  ::setrlimit(RLIMIT_FSIZE, &before);
}

TEST(Arena, ReusesABlockWhenNobodyReadsIt) {
  const auto file = fsdp::node::SharedFile::create();
  std::uint64_t finished = 0;
  fsdp::node::Arena arena(file, 0, [&](std::uint64_t number) { return number < finished; });
  auto& first = arena.take(1000);
  void* place = first.pages.start();
  first.readers = {{0, 0, 8}, {1, 8, 16}};
  arena.give_back(first);
  finished = 1;
  auto& second = arena.take(1000);
  EXPECT_NE(second.pages.start(), place) << "collective 1 may still read the first";
  finished = 2;
  EXPECT_EQ(arena.take(1000).pages.start(), place);
}

TEST(Arena, ReplacesFreeBlocksThatAreTooSmall) {
  const auto file = fsdp::node::SharedFile::create();
  fsdp::node::Arena arena(file, 0, [](std::uint64_t) { return true; });
  auto& small = arena.take(1000);
  const auto small_bytes = small.pages.bytes();
  arena.give_back(small);
  auto& large = arena.take(100'000);
  EXPECT_GT(large.pages.bytes(), small_bytes);
  arena.give_back(large);
  auto& again = arena.take(1000);
  EXPECT_EQ(again.pages.bytes(), fsdp::node::whole_pages(100'000));
}

}  // namespace
