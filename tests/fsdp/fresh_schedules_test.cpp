// Goal: as schedules_test.cpp, over thousands of schedules that no run before has made.
// Method: the seeds begin at the time of day, and a failure names its tree: FSDP_FIRST_TREE=N makes it again.
#include <chrono>
#include <cstdlib>

#include "tests/fsdp/random_schedules.h"

namespace {

constexpr std::uint64_t kTrees = 60;

std::uint64_t first_tree() {
  if (const char* given = std::getenv("FSDP_FIRST_TREE")) return std::strtoull(given, nullptr, 10);
  return static_cast<std::uint64_t>(std::chrono::system_clock::now().time_since_epoch() / std::chrono::seconds(1));
}

class FreshSchedules : public ::testing::TestWithParam<int> {};

TEST_P(FreshSchedules, TrainLikePlainAutograd) {
  const std::uint64_t first = first_tree();
  RecordProperty("first_tree", std::to_string(first));
  run_thread_ranks(GetParam(), [first](fsdp::DeviceMesh& mesh) {
    for (std::uint64_t seed = first; seed < first + kTrees && !::testing::Test::HasFailure(); ++seed)
      train_tree(seed, mesh);
  });
}

INSTANTIATE_TEST_SUITE_P(WorldSizes, FreshSchedules, ::testing::Values(1, 2, 3, 4));

}  // namespace
