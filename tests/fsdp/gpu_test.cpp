// The engine on CUDA with NCCL. Built with MUSTER_WITH_CUDA only; skipped where there is no GPU.
#include <ATen/cuda/Sleep.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAFunctions.h>
#include <gmock/gmock.h>

#include <map>
#include <string>

#include "fsdp/comm/transport.h"
#include "fsdp/files/checkpoint.h"
#include "fsdp/optim/grad_scaler.h"
#include "fsdp/optim/step_graph.h"
#include "fsdp/text/json.h"
#include "fsdp/tracing/trace.h"
#include "tests/expected_gpus.h"
#include "tests/fsdp/ranks.h"
#include "tests/fsdp/small_model.h"
#include "tests/fsdp/temporary_folder.h"

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
    const at::Tensor& shard = trainable_part(*trainer.sharded.units()[0]).shard();
    EXPECT_EQ(shard.is_cuda(), !options.offload.to_cpu);
    EXPECT_EQ(shard.is_pinned(), options.offload.to_cpu && options.offload.pin_memory);
    for (int step = 0; step < kSteps; ++step)
      EXPECT_THAT(relative(trainer.step(step), truth[step]), Le(kLossTolerance)) << "step " << step;
    const auto state = trainer.sharded.gather_full_state();
    for (const auto& item : reference.model->named_parameters())
      EXPECT_THAT(distance(state.at(item.key()), item.value().cpu()), Le(kParameterTolerance)) << item.key();
  });
}

class Gpu : public ::testing::Test {
 protected:
  void SetUp() override { MUSTER_NEED_GPUS(1, c10::cuda::device_count()); }
};

class TwoGpus : public Gpu {
 protected:
  void SetUp() override { MUSTER_NEED_GPUS(2, c10::cuda::device_count()); }
};

TEST_F(Gpu, OneRankTrainsLikeTheUnshardedModel) {
  expect_training_equals_reference(1, {});
}

TEST_F(Gpu, ShardsGradientsAndStatesMayLiveOnTheCpu) {
  for (const bool pins : {true, false}) {
    fsdp::ShardOptions options;
    options.offload = {.to_cpu = true, .pin_memory = pins};
    expect_training_equals_reference(1, options);
  }
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

TEST_F(Gpu, ASaveBesideTheTrainingHoldsWhatTheModelWasWhenItBegan) {
  const TemporaryFolder folder;
  run_gpu_ranks(1, [&](fsdp::DeviceMesh& mesh) {
    fsdp::CheckpointOptions options;
    options.folder = folder.path();
    Trainer trainer(mesh), loaded(mesh, {}, /*seed=*/8);
    for (int step = 0; step < 3; ++step) trainer.step(step);
    fsdp::Checkpointer checkpointer(trainer.sharded, *trainer.optimizer, options);
    for (int save = 0; save < 2; ++save) {  // the second one finds the first one's copies
      fsdp::CheckpointState state;
      state.step = 3 + save;
      const auto at_begin = trainer.sharded.gather_full_state();
      checkpointer.begin_save(state);
      const double next = trainer.step(state.step);
      const double after = trainer.step(state.step + 1);
      ASSERT_TRUE(checkpointer.wait());
      ASSERT_TRUE(fsdp::Checkpointer(loaded.sharded, *loaded.optimizer, options).load_latest());
      for (const auto& [name, value] : loaded.sharded.gather_full_state())
        EXPECT_TRUE(at::equal(value, at_begin.at(name))) << name;
      EXPECT_THAT(relative(loaded.step(state.step), next), Le(1e-6));
      EXPECT_THAT(relative(loaded.step(state.step + 1), after), Le(1e-5)) << "after an update with the moments";
    }
  });
}

/// Begin and end of a trace's spans in one row, in microseconds, by name.
std::multimap<std::string, std::pair<double, double>> spans_in_row(const std::string& trace, int row) {
  std::multimap<std::string, std::pair<double, double>> spans;
  const fsdp::Json parsed = fsdp::Json::parse(trace);
  for (const fsdp::Json& event : parsed.at("traceEvents").as_array()) {
    if (event.at("ph").as_string() != "X" || event.at("tid").as_int() != row) continue;
    const double begin = event.at("ts").as_double();
    spans.emplace(event.at("name").as_string(), std::pair(begin, begin + event.at("dur").as_double()));
  }
  return spans;
}

// Goal: the device's row tells when the GPU computed, which is after the host has queued the work.
TEST_F(Gpu, ATraceHasARowOfTheGpusOwnTime) {
  run_gpu_ranks(1, [](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    for (int step = 0; step < 3; ++step) trainer.step(step);
    constexpr double kMost = 1e6;
    mesh.tracer()->begin(mesh.device());
    at::cuda::sleep(100'000'000);  // tens of milliseconds, in which the host queues the whole forward
    const at::Tensor loss = trainer.model->forward(tokens_of(3).to(mesh.device(), /*non_blocking=*/true));
    loss.backward();
    trainer.optimizer->step(1e-2);
    trainer.sharded.zero_grad();
    const std::string trace = mesh.tracer()->end(mesh.rank());
    const auto host = spans_in_row(trace, 1), device = spans_in_row(trace, 2);
    EXPECT_EQ(host.size(), device.size());
    for (const auto& unit : trainer.sharded.units()) {
      const std::string name = "forward " + unit->name();
      ASSERT_EQ(host.count(name), 1U) << name;
      ASSERT_EQ(device.count(name), 1U) << name;
    }
    const auto name = "forward " + trainer.sharded.units().front()->name();
    const auto queued = host.find(name)->second, computed = device.find(name)->second;
    EXPECT_GT(computed.first, queued.first + 5'000) << "the GPU slept first";
    EXPECT_GT(computed.second, computed.first);
    EXPECT_LT(computed.second, queued.first + kMost);
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

/// Lets every wait of the host for the GPU throw.
struct HostMustNotWait {
  HostMustNotWait() { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_ERROR); }
  ~HostMustNotWait() { c10::cuda::warning_state().set_sync_debug_mode(c10::cuda::SyncDebugMode::L_DISABLED); }
  HostMustNotWait(const HostMustNotWait&) = delete;
  HostMustNotWait& operator=(const HostMustNotWait&) = delete;
};

TEST_F(Gpu, TheHostWaitsForNothingInAStep) {
  run_gpu_ranks(1, [](fsdp::DeviceMesh& mesh) {
    fsdp::ShardOptions options;
    options.precision.param_dtype = at::kBFloat16;  // so that a world of one gathers and reduces, too
    Trainer trainer(mesh, options);
    for (int step = 0; step < 3; ++step) trainer.step(step);
    const at::Tensor tokens = tokens_of(3).to(mesh.device());
    at::Tensor loss;
    fsdp::GradientNorm norm;
    {
      const HostMustNotWait guard;
      EXPECT_THROW(tokens.sum().item<std::int64_t>(), c10::Error) << "the guard itself";
      for (int step = 0; step < 3; ++step) {
        loss = trainer.model->forward(tokens);
        loss.backward();
        norm = fsdp::gradient_norm(trainer.sharded, 1.0);
        trainer.optimizer->step(1e-2, norm.grad_scale, norm.found_inf);
        trainer.sharded.zero_grad();
      }
    }
    EXPECT_GT(norm.norm.item<double>(), 0);
    EXPECT_LT(loss.item<double>(), 4);
  });
}

TEST_F(Gpu, AStepWithGradientsThatAreNotFiniteChangesNothing) {
  run_gpu_ranks(1, [](fsdp::DeviceMesh& mesh) {
    Trainer trainer(mesh);
    trainer.step(0);
    const auto before = trainer.sharded.gather_full_state();
    trainer.accumulate(tokens_of(1), std::numeric_limits<double>::infinity());
    const auto norm = fsdp::gradient_norm(trainer.sharded, 1.0);
    EXPECT_EQ(norm.found_inf.item<float>(), 1);
    trainer.optimizer->step(1e-2, norm.grad_scale, norm.found_inf);
    trainer.sharded.zero_grad();
    for (const auto& [name, value] : trainer.sharded.gather_full_state())
      EXPECT_TRUE(at::equal(value, before.at(name))) << name;
    EXPECT_LT(trainer.step(2), 10) << "and training goes on";
  });
}

TEST_F(Gpu, EachStepNeedsTheSameMemory) {
  run_gpu_ranks(1, [](fsdp::DeviceMesh& mesh) {
    fsdp::ShardOptions options;
    options.precision.param_dtype = at::kBFloat16;
    Trainer trainer(mesh, options);
    trainer.step(0);
    trainer.step(0);
    const auto peak_of_a_step = [&] {
      c10::cuda::CUDACachingAllocator::resetPeakStats(mesh.device().index());
      trainer.step(0);
      const auto stats = c10::cuda::CUDACachingAllocator::getDeviceStats(mesh.device().index());
      return stats.allocated_bytes[0].peak;
    };
    const auto peak = peak_of_a_step();
    for (int step = 0; step < 5; ++step) EXPECT_EQ(peak_of_a_step(), peak);
  });
}

/// Trains with steps that the GPU replays from a graph, and with steps that the host calls, on the same batches.
void expect_a_graph_trains_like_called_steps(int world_size, const fsdp::ShardOptions& options, double coarser = 1) {
  run_gpu_ranks(world_size, [&](fsdp::DeviceMesh& mesh) {
    constexpr float kRate = 0.0078125F;
    Trainer called(mesh, options), graphed(mesh, options);
    const at::Tensor lr = at::zeros({}, at::TensorOptions(at::kFloat).device(mesh.device()));
    fsdp::StepGraph graph(graphed.sharded, *graphed.optimizer, fsdp::make_device_graph(mesh.device()));
    for (int step = 0; step < kSteps; ++step) {
      const at::Tensor tokens = part_of(tokens_of(step), mesh.rank(), mesh.world_size()).contiguous();
      const auto make = [&](Trainer& trainer, const at::Tensor& in, const auto& rate) {
        const at::Tensor loss = trainer.model->forward(in);
        loss.backward();
        const auto norm = fsdp::gradient_norm(trainer.sharded, 1.0);
        trainer.optimizer->step(rate, norm.grad_scale, norm.found_inf);
        trainer.sharded.zero_grad();
        return std::vector<at::Tensor>{loss.detach(), norm.norm};
      };
      const auto want = make(called, tokens.to(mesh.device()), static_cast<double>(kRate));
      const auto& in = graph.inputs({tokens.pin_memory()});
      lr.fill_(kRate);
      const auto& got = graph.run([&] { return make(graphed, in[0], lr); });
      for (std::size_t i = 0; i < want.size(); ++i)
        EXPECT_THAT(relative(got[i].item<double>(), want[i].item<double>()), Le(coarser * kLossTolerance))
            << "step " << step;
      if (step % 6 == 5) {
        const at::NoGradGuard no_grad;
        EXPECT_THAT(relative(graphed.model->forward(in[0]).item<double>(), called.model->forward(in[0]).item<double>()),
                    Le(coarser * kLossTolerance));
      }
    }
    EXPECT_TRUE(graph.is_recorded());
    EXPECT_GT(graph.bytes(), 0);
    EXPECT_EQ(graphed.optimizer->steps(), kSteps);
    const auto state = graphed.sharded.gather_full_state();
    for (const auto& [name, value] : called.sharded.gather_full_state())
      EXPECT_THAT(distance(state.at(name), value), Le(coarser * kParameterTolerance)) << name;
  });
}

TEST_F(Gpu, AGraphOfTheWholeStepTrainsLikeCalledSteps) {
  fsdp::ShardOptions bf16;
  bf16.precision.param_dtype = at::kBFloat16;  // so that a world of one gathers and reduces, too
  expect_a_graph_trains_like_called_steps(1, {});
  expect_a_graph_trains_like_called_steps(1, bf16, /*coarser=*/30);
}

TEST_F(TwoGpus, AGraphOfTheWholeStepHoldsTheCollectives) {
  expect_a_graph_trains_like_called_steps(2, {});
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
