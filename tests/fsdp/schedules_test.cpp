// Goal: whatever order a model runs its units in, the engine trains it as plain autograd does.
// Method: random trees of modules, sharded at random into units, make thousands of random schedules on 1 to 4 ranks.
#include "tests/fsdp/random_schedules.h"

namespace {

constexpr std::uint64_t kTrees = 12;

class RandomSchedules : public ::testing::TestWithParam<int> {};

TEST_P(RandomSchedules, TrainLikePlainAutograd) {
  run_thread_ranks(GetParam(), [](fsdp::DeviceMesh& mesh) {
    for (std::uint64_t seed = 1; seed <= kTrees && !::testing::Test::HasFailure(); ++seed) train_tree(seed, mesh);
  });
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, RandomSchedules, ::testing::Values(1, 2, 3, 4));

}  // namespace
