// Goal: no work of one stream overtakes what it depends on, and no memory is given away while work uses it, whatever
// the strategy and however late a device is.
// Method: the real engine trains on a pretend GPU whose streams run in an order that is drawn (late_device.h). A
// missing wait, or memory that is freed too early, gives other bits than the CPU for some seeds. Collectives run on a
// stream of their own, as NCCL's do. MUSTER_STREAM_SEEDS asks for more seeds than the usual ones.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "fsdp/optim/adafactor.h"
#include "fsdp/optim/muon.h"
#include "tests/fsdp/checkpoint_fixture.h"
#include "tests/fsdp/late_device.h"
#include "tests/fsdp/late_training.h"

namespace {

constexpr int kSteps = 4;

/// The tokens of each step, on the device before the first one. So no step waits for a copy.
std::vector<at::Tensor> all_tokens(at::Device device) {
  std::vector<at::Tensor> all;
  for (int step = 0; step < 3 * kSteps; ++step) all.push_back(tokens_of(step).narrow(0, 0, 2).to(device));
  return all;
}

Result trained(at::Device device, const Case& how) {
  at::set_num_threads(1);
  fsdp::DeviceMesh mesh = mesh_of(device, how);
  Sharded rank(mesh, how);
  const auto tokens = all_tokens(mesh.device());
  const auto blocks = rank.model->blocks;
  rank.model->passes = how.repeats ? 2 : 1;
  std::vector<at::Tensor> losses;
  for (int step = 0; step < kSteps; ++step) {
    if (how.freezes && (step == 1 || step == 2)) rank.model->blocks[1]->up.set_requires_grad(step == 2);
    if (how.abandons && step == 1) {
      rank.accumulate(tokens[9]);
      rank.sharded->abandon_step();
    }
    if (how.skips) {
      rank.model->blocks = blocks;
      if (step % 2 == 1) rank.model->blocks.erase(rank.model->blocks.begin() + 1);
    }
    if (how.accumulates) {
      rank.sharded->set_requires_gradient_sync(how.sums);
      for (const int more : {1, 2}) losses.push_back(rank.accumulate(tokens[more * kSteps + step]));
      rank.sharded->set_requires_gradient_sync(true);
    }
    losses.push_back(rank.accumulate(tokens[step]));
    rank.update();
  }
  Result out = rank.sharded->gather_full_state();
  for (std::size_t i = 0; i < losses.size(); ++i) out["loss " + std::to_string(i)] = losses[i].to(at::kCPU, at::kFloat);
  return out;
}

MakeOptimizer with_moments(fsdp::Moments moments) {
  fsdp::AdamWOptions options;
  options.moments = moments;
  return maker<fsdp::AdamW>(options);
}

std::vector<Case> cases() {
  fsdp::ShardOptions plain, bf16, fp16, zero1, late, deep, offload, pageable;
  bf16.precision.param_dtype = at::kBFloat16;
  fp16.precision.param_dtype = at::kHalf;
  zero1.reshard_after_forward = zero1.reshard_after_backward = false;
  late.prefetch_depth = 0;
  deep.prefetch_depth = 3;
  offload.offload = {.to_cpu = true};
  pageable = bf16;
  pageable.offload = {.to_cpu = true, .pin_memory = false};
  fsdp::ShardOptions reduced = bf16;
  reduced.precision.reduce_dtype = at::kBFloat16;
  fsdp::ShardOptions aligned = plain;
  const MakeOptimizer adafactor = maker<fsdp::Adafactor>(fsdp::AdafactorOptions());
  fsdp::MuonOptions of_blocks;
  of_blocks.is_matrix = [](const fsdp::ParameterInfo& info) {
    return info.shape.size() == 2 && info.name != "embedding";
  };
  const MakeOptimizer muon = maker<fsdp::Muon>(of_blocks);
  aligned.alignment = fsdp::kQuantisedBlock;
  fsdp::ShardOptions nf4 = bf16, int8 = deep, offloaded_nf4 = pageable;
  nf4.frozen_format = offloaded_nf4.frozen_format = [](const auto&) { return fsdp::FrozenFormat::kNf4; };
  int8.frozen_format = [](const auto&) { return fsdp::FrozenFormat::kInt8; };
  const std::vector<fsdp::MeshAxis> replicas = {{"replicate", 2}, {"shard", 2}};
  return {
      {.name = "alone", .options = plain},
      {.name = "alone in bf16", .options = bf16},
      {.name = "alone with offload", .options = offload},
      {.name = "full_shard", .rank = 1, .ranks = 2, .options = plain},
      {.name = "full_shard in bf16", .rank = 1, .ranks = 3, .options = bf16},
      {.name = "bf16 reductions", .rank = 0, .ranks = 2, .options = reduced, .accumulates = true},
      {.name = "scaled fp16", .rank = 0, .ranks = 2, .options = fp16, .scales = true},
      {.name = "zero1", .rank = 0, .ranks = 2, .options = zero1},
      {.name = "no prefetch", .rank = 1, .ranks = 2, .options = late},
      {.name = "deep prefetch", .rank = 0, .ranks = 2, .options = deep},
      {.name = "hybrid_shard", .rank = 3, .ranks = 4, .axes = replicas, .options = plain},
      {.name = "offload", .rank = 1, .ranks = 2, .options = offload, .accumulates = true},
      {.name = "offload of bf16", .rank = 0, .ranks = 2, .options = pageable},
      {.name = "recompute", .rank = 1, .ranks = 2, .options = bf16, .recomputes = true},
      {.name = "activations on the host", .rank = 1, .ranks = 2, .options = bf16, .recomputes = true, .on_host = true},
      {.name = "activations on the host, accumulate",
       .options = plain,
       .recomputes = true,
       .on_host = true,
       .accumulates = true},
      {.name = "activations on the host, abandon",
       .rank = 0,
       .ranks = 2,
       .options = deep,
       .recomputes = true,
       .on_host = true,
       .abandons = true},
      {.name = "freeze", .rank = 0, .ranks = 2, .options = bf16, .freezes = true},
      {.name = "accumulate", .rank = 0, .ranks = 2, .options = bf16, .accumulates = true},
      {.name = "sum", .rank = 1, .ranks = 2, .options = plain, .accumulates = true, .sums = true},
      {.name = "sum with offload", .rank = 0, .ranks = 2, .options = offload, .accumulates = true, .sums = true},
      {.name = "skip", .rank = 1, .ranks = 2, .options = deep, .skips = true},
      {.name = "repeat", .rank = 0, .ranks = 2, .options = plain, .repeats = true},
      {.name = "frozen in nf4", .rank = 1, .ranks = 2, .options = nf4, .accumulates = true},
      {.name = "frozen in nf4 alone, recomputed", .options = nf4, .recomputes = true},
      {.name = "frozen in nf4 with offload", .rank = 0, .ranks = 2, .options = offloaded_nf4},
      {.name = "frozen in int8, skipped", .rank = 0, .ranks = 3, .options = int8, .skips = true},
      {.name = "abandon", .rank = 1, .ranks = 2, .options = plain, .abandons = true},
      {.name = "moments in bf16 with offload",
       .rank = 1,
       .ranks = 2,
       .options = offload,
       .scales = true,
       .make = with_moments(fsdp::Moments::kBf16)},
      {.name = "moments in int8",
       .rank = 1,
       .ranks = 2,
       .options = aligned,
       .freezes = true,
       .make = with_moments(fsdp::Moments::kInt8)},
      {.name = "Adafactor", .rank = 1, .ranks = 3, .options = bf16, .freezes = true, .make = adafactor},
      {.name = "Adafactor with offload", .rank = 0, .ranks = 2, .options = offload, .scales = true, .make = adafactor},
      {.name = "Muon", .rank = 1, .ranks = 2, .options = plain, .skips = true, .make = muon},
      {.name = "Muon with offload", .rank = 0, .ranks = 2, .options = offload, .make = muon},
      {.name = "staged", .rank = 1, .ranks = 2, .options = bf16, .staged = true},
      {.name = "staged hybrid_shard", .rank = 2, .ranks = 4, .axes = replicas, .options = plain, .staged = true},
  };
}

class Streams : public ::testing::TestWithParam<int> {};

TEST(HostActivationsInStreams, MemoryThatIsComingAndNobodyWantsIsGivenAwayAfterItsCopy) {
  for (std::uint64_t seed = 0; seed < 4 * seeds(); ++seed) {
    late::begin(seed);
    fsdp::HostActivations host(late::kDevice, /*least_bytes=*/0);
    const auto on_device = [](double value) {
      return at::full({64}, value, at::TensorOptions().device(late::kDevice));
    };
    auto first = host.put({on_device(1)});
    const auto second = host.put({on_device(2)});
    EXPECT_TRUE(at::equal(host.get(second)[0].cpu(), at::full({64}, 2.0)));  // and the first one comes
    first.reset();
    const at::Tensor next = on_device(3);  // in the memory of the first one
    late::finish();
    EXPECT_TRUE(at::equal(next.cpu(), at::full({64}, 3.0))) << "seed " << seed;
  }
}

TEST_P(Streams, TrainTheBitsOfTheCpuInEachOrder) {
  const Case how = cases()[GetParam()];
  SCOPED_TRACE(how.name);
  const Result want = trained(at::kCPU, how);
  const at::Tensor first = want.at("loss 0"), last = want.at("loss " + std::to_string(kSteps - 1));
  EXPECT_TRUE(last.isfinite().item<bool>() && !at::equal(first, last)) << "the model must change";
  std::int64_t overtakes = 0, streams = 0;
  for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
    late::begin(seed);
    ASSERT_EQ(difference(trained(late::kDevice, how), want), "") << "seed " << seed;
    late::finish();
    overtakes += late::counts().overtakes;
    streams = std::max(streams, late::counts().streams);
  }
  if (how.name == "alone") return;  // computes on one stream
  EXPECT_GE(streams, how.ranks == 1 || how.staged ? 2 : 3);
  EXPECT_GT(overtakes, 50) << "streams must have overtaken one another, or equality says little";
}

INSTANTIATE_TEST_SUITE_P(Of, Streams, ::testing::Range(0, static_cast<int>(cases().size())));

// Moments of fewer bits take LibTorch's operations on a device, whose square roots round otherwise than the CPU's pass.
TEST(StreamsOfMoments, TrainAsTheCpuInEachOrder) {
  const Case how{.name = "moments in bf16", .rank = 0, .ranks = 2, .make = with_moments(fsdp::Moments::kBf16)};
  const Result want = trained(at::kCPU, how);
  for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
    late::begin(seed);
    for (const auto& [name, value] : trained(late::kDevice, how))
      ASSERT_TRUE(at::allclose(value, want.at(name), 1e-3, 1e-4)) << name << ", seed " << seed;
    late::finish();
  }
}

// Goal: a checkpoint that is written beside the training holds what the model was when it began, though the copies to
// the host come late and the training goes on. Method: one rank in bf16, so that it gathers on a stream of its own.
using LateCheckpoint = Checkpoint;
TEST_F(LateCheckpoint, HoldsWhatTheModelWasWhenItsSaveBegan) {
  Case how{.name = "alone in bf16"};
  how.options.precision.param_dtype = at::kBFloat16;
  fsdp::DeviceMesh on_cpu = mesh_of(at::kCPU, how);
  for (std::uint64_t seed = 0; seed < seeds(); ++seed) {
    late::begin(seed);
    fsdp::CheckpointOptions with = options();
    with.folder = folder_.path() / std::to_string(seed);
    Result want;
    {
      fsdp::DeviceMesh mesh = mesh_of(late::kDevice, how);
      Sharded rank(mesh, how);
      const auto tokens = all_tokens(mesh.device());
      fsdp::Checkpointer checkpointer(*rank.sharded, *rank.optimizer, with);
      for (int step = 0; step < 2; ++step) {
        rank.accumulate(tokens[step]);
        rank.update();
      }
      fsdp::CheckpointState state;
      state.step = 2;
      checkpointer.begin_save(state);
      for (int step = 2; step < 4; ++step) {
        rank.accumulate(tokens[step]);
        rank.update();
      }
      ASSERT_TRUE(checkpointer.wait());
      late::finish();
    }
    Case same = how;
    Sharded straight(on_cpu, same), loaded(on_cpu, same);
    const auto tokens = all_tokens(at::kCPU);
    for (int step = 0; step < 2; ++step) {
      straight.accumulate(tokens[step]);
      straight.update();
    }
    ASSERT_TRUE(fsdp::Checkpointer(*loaded.sharded, *loaded.optimizer, with).load_latest());
    ASSERT_EQ(difference(loaded.sharded->gather_full_state(), straight.sharded->gather_full_state()), "")
        << "seed " << seed;
    for (Sharded* each : {&straight, &loaded}) {
      each->accumulate(tokens[2]);
      each->update();
    }
    ASSERT_EQ(difference(loaded.sharded->gather_full_state(), straight.sharded->gather_full_state()), "")
        << "the optimizer's states, seed " << seed;
  }
}

}  // namespace
