// The engine on CUDA with NCCL. Built with MUSTER_WITH_CUDA only; skipped where there is no GPU.
#include <c10/cuda/CUDAFunctions.h>
#include <gmock/gmock.h>

#include "fsdp/checkpoint.h"
#include "fsdp/transport.h"
#include "ranks.h"
#include "small_model.h"
#include "temporary_folder.h"

namespace {

using ::testing::Le;

constexpr int kSteps = 20;
// GPU kernels sum in another order each time, and training amplifies the difference.
constexpr double kLossTolerance = 1e-4, kParameterTolerance = 1e-3;

void run_gpu_ranks(int world_size, const std::function<void(fsdp::DeviceMesh&)>& body) {
  run_ranks(world_size, body, std::chrono::seconds(60), c10::kCUDA);
}

void expect_training_equals_reference(int world_size, const fsdp::ShardOptions& options) {
  Reference reference(7, c10::Device(c10::kCUDA, 0));
  std::vector<double> truth;
  for (int step = 0; step < kSteps; ++step) truth.push_back(reference.step(step));
  ASSERT_LT(truth.back(), 0.8 * truth.front()) << "the reference must learn, or equality says little";
  run_gpu_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh, options);
    EXPECT_TRUE(trainable_part(*trainer.sharded.units()[0]).shard().is_cuda());
    for (int step = 0; step < kSteps; ++step)
      EXPECT_THAT(relative(trainer.step(step), truth[step]), Le(kLossTolerance)) << "step " << step;
    const auto state = trainer.sharded.gather_full_state();
    for (const auto& item : reference.model->named_parameters())
      EXPECT_THAT(distance(state.at(item.key()), item.value().cpu()), Le(kParameterTolerance)) << item.key();
  });
}

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (c10::cuda::device_count() == 0) GTEST_SKIP() << "no GPU on this machine";
  }
};

class TwoGpus : public Gpu {
 protected:
  void SetUp() override {
    Gpu::SetUp();
    if (!IsSkipped() && c10::cuda::device_count() < 2) GTEST_SKIP() << "one GPU on this machine, this test needs two";
  }
};

TEST_F(Gpu, OneRankTrainsLikeTheUnshardedModel) {
  expect_training_equals_reference(1, {});
}

TEST_F(Gpu, ABatchInBf16IsLearnt) {
  run_gpu_ranks(1, [](fsdp::DeviceMesh& mesh) {
    fsdp::ShardOptions options;
    options.precision.param_dtype = at::kBFloat16;
    Trainer trainer(mesh, options);
    const double first = trainer.step(0);
    for (int step = 1; step < kSteps; ++step) trainer.step(0);
    EXPECT_THAT(trainer.step(0), Le(0.5 * first));
  });
}

TEST_F(Gpu, ACheckpointBringsBackParametersAndMoments) {
  const TemporaryFolder folder;
  run_gpu_ranks(1, [&](fsdp::DeviceMesh& mesh) {
    fsdp::CheckpointOptions options;
    options.folder = folder.path();
    Trainer first(mesh);
    for (int step = 0; step < 3; ++step) first.step(step);
    fsdp::CheckpointState state;
    state.step = 3;
    fsdp::Checkpointer(first.sharded, *first.optimizer, options).save(state);
    Trainer second(mesh, {}, /*seed=*/8);
    ASSERT_TRUE(fsdp::Checkpointer(second.sharded, *second.optimizer, options).load_latest());
    EXPECT_THAT(relative(second.step(3), first.step(3)), Le(1e-6));
    EXPECT_THAT(relative(second.step(4), first.step(4)), Le(1e-5)) << "after an update with the moments";
  });
}

TEST_F(Gpu, NcclCarriesEveryCollectiveInAWorldOfOne) {
  c10::cuda::set_device(0);
  const auto store = c10::make_intrusive<c10d::HashStore>();
  const auto nccl = fsdp::make_nccl_transport(store, {0, 1, std::chrono::seconds(60), ""});
  const at::Tensor numbers = at::arange(8, at::TensorOptions(at::kFloat).device(at::kCUDA));
  at::Tensor buffer = numbers.clone(), output = at::zeros_like(numbers);
  nccl->all_gather_into(buffer, {})->wait();
  nccl->reduce_scatter(buffer, output, {})->wait();
  EXPECT_TRUE(at::equal(output, numbers));
  nccl->all_reduce(output, fsdp::Reduction::kSum);
  nccl->all_reduce(output, fsdp::Reduction::kMax);
  nccl->broadcast(output, 0);
  nccl->barrier();
  EXPECT_TRUE(at::equal(output, numbers));
}

TEST_F(TwoGpus, TwoRanksTrainLikeTheUnshardedModel) {
  expect_training_equals_reference(2, {});
}

TEST_F(TwoGpus, TwoRanksTrainAlikeWithParametersKeptUntilBackwardAndWithoutPrefetch) {
  fsdp::ShardOptions options;
  options.reshard_after_forward = false;
  options.prefetch_depth = 0;
  expect_training_equals_reference(2, options);
}

}  // namespace
