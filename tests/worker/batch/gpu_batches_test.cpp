// Goal: the batches of a training on a GPU lie in pinned memory, from which copies to the GPU need no wait.
// Method: a loader alone, and the one that a run sets up. Skipped without a GPU.
#include <ATen/Context.h>
#include <ATen/detail/CUDAHooksInterface.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/ones.h>
#include <gtest/gtest.h>

#include <memory>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "tests/expected_gpus.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/batch/loader.h"
#include "worker/train/setup.h"

namespace worker::testing {
namespace {

class GpuBatches : public ::testing::Test {
 protected:
  void SetUp() override { MUSTER_NEED_GPUS(1, at::hasCUDA() ? at::detail::getCUDAHooks().getNumGPUs() : 0); }
};

/// Two tensors for each sample.
class PlainSamples : public BatchSource {
 public:
  std::int64_t samples() const override { return 12; }
  Batch collate(std::span<const std::int64_t> samples, std::span<const std::uint64_t>) const override {
    Batch batch;
    batch.samples = static_cast<std::int64_t>(samples.size());
    batch.tensors = {{"numbers", at::arange(batch.samples)}, {"rows", at::ones({batch.samples, 5})}};
    return batch;
  }
};

TEST_F(GpuBatches, LoadersPutBatchesInPinnedMemoryIfTheyAreToldTo) {
  for (const bool pin : {false, true}) {
    for (const int threads : {0, 2}) {
      Loader loader(std::make_shared<PlainSamples>(), data::order::Order({.samples = 12}), 0, 1,
                    {.threads = threads, .pin = pin});
      const Batch batch = loader.next(4);
      for (const auto& [name, tensor] : batch.tensors) EXPECT_EQ(tensor.is_pinned(), pin) << name << ", " << threads;
      EXPECT_TRUE(at::equal(batch.at("numbers"), at::arange(4)));
    }
  }
}

TEST_F(GpuBatches, TakesItsBatchesFromPinnedMemory) {
  const TemporaryFolder folder;
  RunConfig config = run_of(folder, R"(,"steps":2)");
  const agent::rank::RankEnvironment alone;
  Listener listener;
  std::promise<agent::rank::Endpoint> meeting;
  listener.meeting = &meeting;
  listener.where = meeting.get_future().share();
  worker::Setup setup(config, alone, listener, make_recipe);
  ASSERT_TRUE(setup.mesh->device().is_cuda());
  const Batch batch = setup.loader->next(2);
  ASSERT_TRUE(batch.has("input_ids"));
  for (const auto& [name, tensor] : batch.tensors) EXPECT_TRUE(tensor.is_pinned()) << name;
}

}  // namespace
}  // namespace worker::testing
