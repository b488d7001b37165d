// Goal: the engine's memory is fixed by the sizes of the units, and every step uses the same memory again.
// Method: the pool alone, and the small model whose pools are compared with the formula.
#include "fsdp/comm/buffer_pool.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <vector>

#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"

namespace {

using ::testing::Le;

TEST(BufferPool, GivesTheSameMemoryAgain) {
  fsdp::BufferPool pool(c10::kCPU);
  const void* first = pool.take(1000)->part(0).get();
  EXPECT_EQ(pool.take(800)->part(0).get(), first);
  const auto a = pool.take(1000), b = pool.take(1000);
  EXPECT_NE(a->part(0).get(), b->part(0).get());
  EXPECT_EQ(pool.bytes(), 2000);
}

TEST(BufferPool, ReplacesAFreeRegionThatIsTooSmall) {
  fsdp::BufferPool pool(c10::kCPU);
  pool.take(1000).reset();
  pool.take(5000).reset();
  EXPECT_EQ(pool.bytes(), 5000) << "two regions for one buffer in use would be one too many";
  pool.take(1000).reset();
  EXPECT_EQ(pool.bytes(), 5000);
}

TEST(BufferPool, HasLargeAndSmallBuffersInOneRegionOfTheReservedSize) {
  fsdp::BufferPool pool(c10::kCPU);
  constexpr std::int64_t kSmall = 640, kLarge = 1600;
  pool.reserve(kSmall + kLarge);
  // Each buffer is taken while the one before is in use: a large one, many small ones, and another large one.
  for (const int small : {1, 2, 3, 8}) {
    std::shared_ptr<fsdp::BufferPool::Lease> before = pool.take(kLarge);
    for (int i = 0; i < small; ++i) before = pool.take(kSmall);
    EXPECT_TRUE(pool.has_room(kLarge)) << small;
    before = pool.take(kLarge);
    EXPECT_EQ(pool.bytes(), kSmall + kLarge) << small;
  }
}

TEST(BufferPool, NeverGivesTheSameBytesTwice) {
  fsdp::BufferPool pool(c10::kCPU);
  pool.reserve(4096);
  std::vector<at::Tensor> taken;
  for (const std::int64_t numel : {100, 17, 300, 1, 64, 500, 33}) taken.push_back(pool.tensor(numel, at::kFloat));
  const auto check = [&] {
    for (std::size_t i = 0; i < taken.size(); ++i) taken[i].fill_(static_cast<double>(i));
    for (std::size_t i = 0; i < taken.size(); ++i)
      EXPECT_TRUE(taken[i].eq(static_cast<double>(i)).all().item<bool>()) << i;
  };
  check();
  taken.erase(taken.begin() + 2);
  taken.erase(taken.begin());
  for (const std::int64_t numel : {80, 250, 20, 700}) taken.push_back(pool.tensor(numel, at::kFloat));
  check();
}

TEST(BufferPool, MakesMoreWhereMoreIsInUseThanWasReserved) {
  fsdp::BufferPool pool(c10::kCPU);
  pool.reserve(1000);
  const auto first = pool.take(640);
  EXPECT_FALSE(pool.has_room(640));
  pool.take(640).reset();
  EXPECT_EQ(pool.bytes(), 1640);
  EXPECT_TRUE(pool.has_room(640));
  pool.take(640).reset();
  EXPECT_EQ(pool.bytes(), 1640) << "the second region serves again";
  pool.take(2000).reset();
  EXPECT_EQ(pool.bytes(), 3000) << "and is replaced by a larger one";
}

TEST(BufferPool, TakesAnotherReservationWhenNothingIsInUse) {
  fsdp::BufferPool pool(c10::kCPU);
  pool.reserve(1000);
  auto lease = pool.take(500);
  pool.reserve(3000);
  EXPECT_EQ(pool.bytes(), 1000);
  lease.reset();
  EXPECT_TRUE(pool.has_room(3000));
  pool.take(500).reset();
  EXPECT_EQ(pool.bytes(), 3000);
}

TEST(BufferPool, KeepsABufferUntilItsLastPartIsFreed) {
  fsdp::BufferPool pool(c10::kCPU);
  auto lease = pool.take(256);
  c10::DataPtr head = lease->part(0), tail = lease->part(128);
  const void* start = head.get();
  lease.reset();
  head.clear();
  EXPECT_NE(pool.take(256)->part(0).get(), start);
  tail.clear();
  EXPECT_EQ(pool.take(256)->part(0).get(), start);
}

TEST(BufferPool, GivesNoMemoryBackWhileAGraphUsesIt) {
  fsdp::BufferPool pool(c10::kCPU);
  pool.take(1000).reset();
  pool.keep_memory(true);
  pool.take(5000).reset();
  EXPECT_EQ(pool.bytes(), 6000) << "a graph may use the small region";
  pool.trim();
  EXPECT_EQ(pool.bytes(), 6000);
  pool.keep_memory(false);
  EXPECT_EQ(pool.bytes(), 0);
}

TEST(BufferPool, MayDieBeforeItsLeases) {
  auto pool = std::make_unique<fsdp::BufferPool>(c10::kCPU);
  at::Tensor tensor = pool->tensor(100, at::kFloat);
  pool.reset();
  EXPECT_EQ(tensor.fill_(2).sum().item<double>(), 200);
}

/// The size of a unit's buffer, in fp32.
std::int64_t buffer_of(const fsdp::Unit& unit, int world_size, bool trainable_only) {
  std::int64_t bytes = 0;
  for (const auto& segment : unit.segments())
    if (segment->key().trainable || !trainable_only) bytes += segment->layout().chunk() * world_size * 4;
  return bytes;
}

TEST(Memory, IsFixedByTheUnitsAndEqualInEveryStep) {
  for (const int world_size : {2, 3, 4}) {
    for (const int depth : {0, 1}) {
      run_ranks(world_size, [depth](fsdp::DeviceMesh& mesh) {
        fsdp::ShardOptions options;
        options.prefetch_depth = depth;
        Trainer trainer(mesh, options);
        const auto& units = trainer.sharded.units();
        const int n = mesh.world_size();
        const fsdp::Unit &block = *units[0], &root = *units.back();
        const std::int64_t want = (1 + depth) * buffer_of(block, n, false) + 2 * buffer_of(block, n, true) +
                                  buffer_of(root, n, false) + buffer_of(root, n, true);
        trainer.step(0);
        for (int step = 1; step < 6; ++step) {
          trainer.step(step);
          EXPECT_EQ(trainer.sharded.memory().pool_bytes, want) << "step " << step;
        }
      });
    }
  }
}

TEST(Memory, OfAChangedOrderIsNoMore) {
  run_ranks(2, [](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    trainer.step(0);
    trainer.step(1);
    const std::int64_t usual = trainer.sharded.memory().pool_bytes;
    auto& blocks = trainer.model->blocks;
    for (int step = 2; step < 8; ++step) {
      std::rotate(blocks.begin(), blocks.begin() + 1 + step % 2, blocks.end());
      trainer.step(step);
      EXPECT_EQ(trainer.sharded.memory().pool_bytes, usual) << "step " << step;
    }
  });
}

TEST(Memory, OfParametersAndGradientsIsInTheSamePlacesInEveryStep) {
  for (const int world_size : {1, 2}) {
    run_ranks(world_size, [](fsdp::DeviceMesh& mesh) {
      Trainer trainer(mesh);
      std::set<const void*> parameters, gradients;
      auto& block = *trainer.model->blocks[1];
      const auto inner = block.wrap;
      block.wrap = [&](at::Tensor x, const auto& forward) {
        return inner(x, [&](at::Tensor in) {
          parameters.insert(block.up.const_data_ptr());
          const at::Tensor out = forward(in);
          in.register_hook([&](const at::Tensor&) { gradients.insert(block.up.grad().const_data_ptr()); });
          return out;
        });
      };
      for (int step = 0; step < 3; ++step) trainer.step(step);
      const std::size_t parameter_places = parameters.size(), gradient_places = gradients.size();
      for (int step = 3; step < 8; ++step) trainer.step(step);
      EXPECT_EQ(parameters.size(), parameter_places);
      EXPECT_EQ(gradients.size(), gradient_places);
      EXPECT_THAT(gradients.size(), Le(2u));
    });
  }
}

}  // namespace
