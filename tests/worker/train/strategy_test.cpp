// Goal: fsdp.strategy reaches mesh and units, and changes traffic but not the training.
// Method: the trainer on four ranks, and the functions that read the keys.
#include "worker/train/strategy.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "base/usage_error.h"
#include "fsdp/comm/transport.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/train/step_measures.h"

namespace worker::testing {
namespace {

using ::testing::HasSubstr;

struct Trained {
  std::vector<double> losses;
  std::int64_t bytes = 0;
  double gathered = 0, peak = 0;  // of the last step: sent in all-gathers over "shard", and held by tensors
};

/// Five steps of four ranks of which the third is continued from a checkpoint.
Trained trained(const std::string& fsdp, const std::string& more_train = "") {
  const TemporaryFolder folder;
  Trained out;
  for (const int steps : {3, 5}) {
    std::vector<Listener> ranks(4);
    train(run_of(folder, R"(,"batch_size":8,"micro_batch_size":1,"steps":)" + std::to_string(steps) + more_train, fsdp),
          ranks);
    for (const auto& step : ranks[0].steps) out.losses.push_back(value_of(step.values, "loss").value_or(-1));
    const agent::rank::StepReport& last = ranks[0].steps.back();
    out.bytes = last.bytes_communicated;
    out.gathered = value_of(last.values, "gathered_bytes").value_or(-1);
    out.peak = value_of(last.values, "tensor_peak_bytes").value_or(-1);
  }
  return out;
}

TEST(Strategy, ChangesTrafficAndNotTheTraining) {
  const auto full = trained("");
  ASSERT_EQ(full.losses.size(), 5u);
  const std::vector<std::string> others{R"(,"strategy":"shard_grad_op")", R"(,"strategy":"zero1")",
                                        R"(,"strategy":"hybrid_shard","shard_ranks":2)", R"(,"strategy":"no_shard")"};
  std::int64_t before = full.bytes;
  for (const auto& fsdp : others) {
    const auto other = trained(fsdp);
    ASSERT_EQ(other.losses.size(), full.losses.size()) << fsdp;
    for (std::size_t i = 0; i < full.losses.size(); ++i) {
      EXPECT_LE(std::abs(other.losses[i] - full.losses[i]), 1e-6 * full.losses[i]) << fsdp << " step " << i;
    }
    EXPECT_LT(other.bytes, before) << fsdp << " sends less than the one before";
    before = fsdp.find("zero1") == std::string::npos ? other.bytes : full.bytes;
  }
}

// Each changes traffic or memory of real steps in its own way, so it has reached units and collectives.
TEST(Strategy, EachKeyActsInATraining) {
  const auto full = trained(""), none_ahead = trained(R"(,"prefetch_depth":0)");
  EXPECT_LT(trained(R"(,"reshard_after_backward":false)").gathered, full.gathered);
  EXPECT_LT(trained(R"(,"reshard_to_ranks":2)").gathered, full.gathered) << "backward gathers among neighbours";
  EXPECT_LT(trained(R"(,"reshard_after_forward":false)").gathered, full.gathered);
  EXPECT_LT(none_ahead.peak, full.peak);
  EXPECT_GT(trained(R"(,"prefetch_depth":2)").peak, full.peak);
  EXPECT_GT(trained(R"(,"prefetch_depth":0,"backward_prefetch_depth":2)").peak, none_ahead.peak);
  EXPECT_LT(trained(R"(,"tight":true)").peak, full.peak);
  const std::string blocks = R"(,"activation_checkpointing":"block")", keeps = R"(,"activation_checkpointing_keeps":)";
  const std::int64_t none = trained(blocks).peak, linear = trained(blocks + keeps + R"("linear")").peak,
                     both = trained(blocks + keeps + R"("both")").peak;
  EXPECT_LT(none, linear);
  EXPECT_LT(linear, both);
  EXPECT_LT(both, full.peak);
}

TEST(Strategy, GradientsAreSummedInTheFormatThatIsAskedFor) {
  const std::string bf16 = R"(,"precision":"bf16")";
  const auto usual = trained("", bf16), narrow = trained(R"(,"reduce_precision":"bf16")", bf16);
  EXPECT_LT(narrow.bytes, usual.bytes) << "gradients have half the size";
  EXPECT_NE(narrow.losses, usual.losses);
  for (std::size_t i = 0; i < usual.losses.size(); ++i) EXPECT_NEAR(narrow.losses[i], usual.losses[i], 0.02) << i;
  EXPECT_LT(trained(R"(,"reduce_precision":"bf16")").bytes, trained("").bytes) << "beside fp32 weights, too";
}

TEST(Strategy, NormsMayStayInFp32) {
  const std::string bf16 = R"(,"precision":"bf16")";
  const auto fp32 = trained(""), usual = trained("", bf16), mixed = trained(R"(,"fp32_norms":true)", bf16);
  EXPECT_GT(mixed.gathered, usual.gathered) << "their weights are sent in fp32";
  EXPECT_NE(mixed.losses, usual.losses);
  for (std::size_t i = 0; i < fp32.losses.size(); ++i) EXPECT_NEAR(mixed.losses[i], fp32.losses[i], 0.02) << i;
}

TEST(Strategy, FormatsThatHaveNoEffectOrDoHarmAreRefused) {
  const auto refusal = [](const std::string& fsdp, const std::string& train) -> std::string {
    try {
      run_of(TemporaryFolder(), train, fsdp);
    } catch (const base::UsageError& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(refusal(R"(,"reduce_precision":"fp16","fp32_norms":true)", R"(,"precision":"fp16")"), "");
  EXPECT_THAT(refusal(R"(,"reduce_precision":"fp16")", R"(,"precision":"bf16")"),
              HasSubstr("fsdp.reduce_precision = \"fp16\": want train.precision = \"fp16\" with it"));
  EXPECT_THAT(refusal(R"(,"fp32_norms":true)", ""),
              HasSubstr("fsdp.fp32_norms = true: want train.precision = \"bf16\" or \"fp16\" with it"));
}

TEST(Strategy, ATrainingOnCpusThatAsksForOffloadIsRefused) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(1);
  std::string why;
  ranks[0].on_failure = [&](const std::string& error) { why = error; };
  train(run_of(folder, R"(,"steps":1)", R"(,"offload":"cpu")"), ranks);
  EXPECT_THAT(why, HasSubstr("fsdp.offload \"cpu\": this run is on CPUs"));
}

// All are full_shard, so the sums of gradients and of their norm have one order.
TEST(Strategy, DepthsPartsAndTightMemoryChangeNoNumberOfTheTraining) {
  const auto full = trained("");
  for (const char* fsdp : {R"(,"tight":true)", R"(,"prefetch_depth":3,"backward_prefetch_depth":0)",
                           R"(,"reshard_after_backward":false)", R"(,"reshard_to_ranks":2,"prefetch_depth":2)"})
    EXPECT_EQ(trained(fsdp).losses, full.losses) << fsdp;
}

TEST(Strategy, EveryKeyReachesTheUnits) {
  const auto options_of = [](const std::string& fsdp) {
    const TemporaryFolder folder;
    return shard_options(run_of(folder, "", fsdp));
  };
  const auto usual = options_of(R"(,"prefetch_depth":3)");
  EXPECT_EQ(usual.prefetch_depth, 3);
  EXPECT_EQ(usual.backward_prefetch_depth, std::nullopt);
  EXPECT_EQ(usual.reshard_to_ranks, 0);
  EXPECT_TRUE(usual.reshard_after_backward);
  EXPECT_FALSE(usual.tight);
  EXPECT_FALSE(usual.offload.to_cpu);
  const auto other = options_of(
      R"(,"backward_prefetch_depth":0,"reshard_to_ranks":2,"strategy":"hybrid_shard","reshard_after_backward":false,)"
      R"("tight":true,"offload":"cpu")");
  EXPECT_EQ(other.prefetch_depth, 1);
  EXPECT_EQ(other.backward_prefetch_depth, 0);
  EXPECT_EQ(other.reshard_to_ranks, 2);
  EXPECT_FALSE(other.reshard_after_backward);
  EXPECT_TRUE(other.tight);
  EXPECT_TRUE(other.offload.to_cpu);
  // The recipe gives them to each of its units.
  const TemporaryFolder folder;
  const auto config = run_of(folder, "",
                             R"(,"backward_prefetch_depth":3,"prefetch_depth":2,"reshard_to_ranks":2,"tight":true,)"
                             R"("reshard_after_backward":false)");
  fsdp::DeviceMesh mesh(
      0, 4, [](const fsdp::MeshGroup& group) { return fsdp::make_still_transport(group.rank, group.size); });
  const auto recipe = make_recipe(config);
  Parts parts(recipe->parts(), mesh, config);
  const fsdp::ShardedModel& sharded = parts.trained();
  EXPECT_EQ(sharded.units().size(), 6U) << "the embedding, three layers, the head and the root";
  for (const auto& unit : sharded.units()) {
    const fsdp::ShardOptions& of_unit = unit->options();
    EXPECT_EQ(of_unit.prefetch_depth, 2) << unit->name();
    EXPECT_EQ(of_unit.backward_prefetch_depth, 3) << unit->name();
    const bool is_last = unit->name() == "lm_head";
    EXPECT_EQ(of_unit.reshard_after_forward, unit->name() != "root" && !is_last) << unit->name();
    EXPECT_EQ(of_unit.runs_last, is_last) << unit->name();
    EXPECT_EQ(of_unit.backward_reads_parameters, unit->name() != "model.embed_tokens") << unit->name();
    EXPECT_FALSE(of_unit.reduce_each_run) << unit->name();
    EXPECT_FALSE(of_unit.reshard_after_backward) << unit->name();
    EXPECT_EQ(of_unit.reshard_to_ranks, 2) << unit->name();
    EXPECT_TRUE(of_unit.tight) << unit->name();
  }
  auto without = run_of(TemporaryFolder(), "", R"(,"prefetch_depth":3,"backward_prefetch_depth":2)");
  without.fsdp.prefetch = false;
  EXPECT_EQ(shard_options(without).prefetch_depth, 0);
  EXPECT_EQ(shard_options(without).backward_prefetch_depth, std::nullopt);
}

TEST(Strategy, RefusesWhatAPlaceCannotServe) {
  const auto refusal = [](const spec::Sharding& sharding, int ranks, c10::Device device) -> std::string {
    try {
      check_sharding(sharding, ranks, device);
    } catch (const base::UsageError& error) {
      return error.what();
    }
    return "";
  };
  const c10::Device gpu(c10::kCUDA, 0);
  spec::Sharding offloaded, near;
  offloaded.offload = spec::Offloading::kCpu;
  near.reshard_to_ranks = 2;
  EXPECT_EQ(refusal({}, 4, c10::kCPU), "");
  EXPECT_EQ(refusal(offloaded, 4, gpu), "");
  EXPECT_THAT(refusal(offloaded, 4, c10::kCPU), HasSubstr("fsdp.offload \"cpu\": this run is on CPUs"));
  spec::Sharding on_host;
  on_host.activation_offload = true;
  EXPECT_EQ(refusal(on_host, 4, gpu), "");
  EXPECT_THAT(refusal(on_host, 4, c10::kCPU), HasSubstr("fsdp.activation_offload = true: this run is on CPUs"));
  EXPECT_EQ(refusal(near, 4, c10::kCPU), "");
  for (const int ranks : {1, 2, 3})
    EXPECT_THAT(refusal(near, ranks, gpu),
                HasSubstr("fsdp.reshard_to_ranks \"2\": want a divisor of the " + std::to_string(ranks) + " ranks"));
}

spec::Sharding hybrid(std::int64_t shard_ranks) {
  spec::Sharding sharding;
  sharding.strategy = spec::Strategy::kHybridShard;
  sharding.shard_ranks = shard_ranks;
  return sharding;
}

std::string axes_text(const spec::Sharding& sharding, int world_size, int local_world_size) {
  agent::rank::RankEnvironment environment;
  environment.world_size = world_size;
  environment.local_world_size = local_world_size;
  std::string text;
  try {
    for (const auto& axis : mesh_options(sharding, environment).axes)
      text += axis.name + " " + std::to_string(axis.size) + " ";
  } catch (const base::UsageError& error) {
    return error.what();
  }
  return text;
}

TEST(SeparateReductions, FollowTheKeyAndAreTheEngineSChoiceWithoutIt) {
  spec::Sharding sharding;
  EXPECT_EQ(mesh_options(sharding, {}).separate_reductions, std::nullopt);
  for (const bool wanted : {true, false}) {
    sharding.separate_reductions = wanted;
    EXPECT_EQ(mesh_options(sharding, {}).separate_reductions, wanted);
  }
  const TemporaryFolder folder;
  EXPECT_EQ(run_of(folder, "").fsdp.separate_reductions, std::nullopt);
  EXPECT_EQ(run_of(folder, "", R"(,"separate_reductions":false)").fsdp.separate_reductions, false);
  EXPECT_EQ(run_of(folder, "", R"(,"separate_reductions":true)").fsdp.separate_reductions, true);
}

TEST(SeparateReductions, ChangeNoNumberOfTheTraining) {
  const auto with = trained(R"(,"separate_reductions":true)"), without = trained("");
  EXPECT_EQ(with.losses, without.losses);
  EXPECT_EQ(with.bytes, without.bytes);
}

TEST(SeparateReductions, AreNamedWhereTheKeyHasNoEffect) {
  spec::Sharding sharding;
  EXPECT_EQ(separate_reductions_without_effect(sharding, 1, false), "");
  sharding.separate_reductions = true;
  EXPECT_EQ(separate_reductions_without_effect(sharding, 8, true), "");
  EXPECT_EQ(separate_reductions_without_effect(sharding, 8, false), "") << "sockets of their own";
  EXPECT_THAT(separate_reductions_without_effect(sharding, 1, true), HasSubstr("weights are on one rank"));
  sharding.separate_reductions = false;
  EXPECT_EQ(separate_reductions_without_effect(sharding, 8, true), "");
  EXPECT_THAT(separate_reductions_without_effect(sharding, 8, false),
              HasSubstr("fsdp.separate_reductions has no effect here: without NCCL"));
}

TEST(SharedMemory, IsUsedUnlessTheKeyIsFalse) {
  spec::Sharding sharding;
  for (const bool wanted : {true, false}) {
    sharding.shared_memory = wanted;
    EXPECT_EQ(mesh_options(sharding, {}).shared_memory, wanted);
  }
}

TEST(SharedMemory, ChangesNoNumberOfTheTraining) {
  const auto with = trained(""), without = trained(R"(,"shared_memory":false)");
  EXPECT_EQ(with.losses, without.losses);
  EXPECT_EQ(with.bytes, without.bytes);
}

TEST(Strategy, HybridGroupsTheRanksOfANodeUnlessToldOtherwise) {
  EXPECT_EQ(axes_text(hybrid(0), 8, 4), "replicate 2 shard 4 ");
  EXPECT_EQ(axes_text(hybrid(2), 8, 4), "replicate 4 shard 2 ");
  EXPECT_EQ(axes_text({}, 8, 4), "");
  EXPECT_THAT(axes_text(hybrid(3), 8, 4), HasSubstr("fsdp.shard_ranks \"3\": want a divisor of the 8 ranks"));
  EXPECT_THAT(axes_text(hybrid(0), 6, 4),
              HasSubstr("the 6 ranks are no multiple of the 4 on this node; set fsdp.shard_ranks to a divisor of 6"));
}

}  // namespace
}  // namespace worker::testing
