// Goal: a plan says what a training will need, before it runs.
// Method: plans beside real trainings of two ranks whose allocations are counted; large models that no test could hold.
#include "worker/plan/plan.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <tuple>
#include <utility>

#include "base/process_table.h"
#include "base/usage_error.h"
#include "fsdp/memory/storage.h"
#include "spec/tables/llama_keys.h"
#include "tests/worker/llama_folder.h"
#include "tests/worker/plan_settings.h"
#include "tests/worker/temporary_folder.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/plan/plan_command.h"

namespace worker::testing {
namespace {

struct Measured {
  std::int64_t tensor_bytes = 0, wire_bytes = 0;
};

/// The bytes that rank 0 of a real training allocates at the peak of step 3, and sends in it.
Measured measured(const RunConfig& config, int world_size) {
  static thread_local std::optional<fsdp::CountTensorBytes> counts;
  std::vector<Listener> ranks(static_cast<std::size_t>(world_size));
  Measured out;
  // A recipe is made on its rank's thread, before all tensors. Steps end there, too.
  const auto make = [&](const RunConfig& run) {
    counts.emplace(std::make_shared<fsdp::TensorBytes>());
    return make_recipe(run);
  };
  for (auto& rank : ranks) {
    rank.on_step = [&, rank = &rank] {
      if (rank->steps.size() == 2) counts->bytes().forget_peak();
      if (rank->steps.size() < 3) return;
      if (rank == &ranks[0]) out = {counts->bytes().peak(), rank->steps.back().bytes_communicated};
      counts.reset();
    };
  }
  train(config, ranks, 1, make);
  return out;
}

TEST(Plan, IsWithinHalfAPercentOfTheTensorsOfARealTraining) {
  const std::vector<std::pair<const char*, Settings>> cases = {
      {"full_shard", {.train = R"(,"batch_size":8)"}},
      {"recomputed blocks", {.train = R"(,"batch_size":8)", .fsdp = R"(,"activation_checkpointing":"block")"}},
      {"recomputed blocks that keep their products",
       {.train = R"(,"batch_size":8)",
        .fsdp = R"(,"activation_checkpointing":"block","activation_checkpointing_keeps":"linear")"}},
      {"recomputed blocks that keep products and attention",
       {.train = R"(,"batch_size":8)",
        .fsdp = R"(,"activation_checkpointing":"block","activation_checkpointing_keeps":"both")"}},
      {"recomputed feed-forward parts of every second block",
       {.train = R"(,"batch_size":8)",
        .fsdp = R"(,"activation_checkpointing":"mlp","activation_checkpointing_every":2)"}},
      {"bf16", {.train = R"(,"batch_size":8,"precision":"bf16")"}},
      {"accumulation, tied head",
       {.model = R"(,"tie_word_embeddings":true)", .train = R"(,"batch_size":16,"micro_batch_size":2)"}},
      {"Muon", {.train = R"(,"batch_size":8,"optimizer":"muon")"}},
      {"Adafactor", {.train = R"(,"batch_size":8,"optimizer":"adafactor")"}},
      {"moments in bf16", {.train = R"(,"batch_size":8,"moments":"bf16")"}},
      {"moments in int8", {.train = R"(,"batch_size":8,"moments":"int8")"}},
      {"zero1, accumulation", {.train = R"(,"batch_size":16,"micro_batch_size":2)", .fsdp = R"(,"strategy":"zero1")"}},
      {"shard_grad_op, Lion",
       {.model = R"(,"vocab_size":2048)",
        .train = R"(,"batch_size":4,"optimizer":"lion")",
        .fsdp = R"(,"strategy":"shard_grad_op")"}},
      {"no_shard, no prefetch", {.train = R"(,"batch_size":4)", .fsdp = R"(,"strategy":"no_shard","prefetch":false)"}},
      {"biases, dropout, scaled RoPE",
       {.model = R"(,"attention_bias":true,"mlp_bias":true,"attention_dropout":0.1,"rope_type":"llama3")",
        .train = R"(,"batch_size":4)"}},
      {"fp16, large vocabulary",
       {.model = R"(,"vocab_size":8192)", .train = R"(,"batch_size":4,"precision":"fp16","clip_norm":1)"}},
  };
  for (const auto& [name, settings] : cases) {
    SCOPED_TRACE(name);
    const TemporaryFolder folder;
    const RunConfig config = config_of(folder, settings);
    const RankPlan plan = plan_rank(config, place_of(2));
    const Measured real = measured(config, 2);
    const auto planned = static_cast<double>(plan.tensor_bytes()), needed = static_cast<double>(real.tensor_bytes);
    EXPECT_NEAR(planned, needed, 0.005 * needed);
    EXPECT_EQ(plan.wire_bytes, real.wire_bytes);
  }
}

// The arithmetic for a Pythia beside what a small one takes. docs/recipes.md has these numbers.
TEST(Plan, OfASmallPythiaAsDdpAndShardedIsWhatItTakes) {
  for (const char* strategy : {"no_shard", "full_shard"}) {
    const TemporaryFolder folder;
    const RunConfig config = parse_run_config(
        R"({"format":1,"name":"pythia","model":{"family":"gpt_neox","vocab_size":8192,"hidden_size":256,
        "intermediate_size":1024,"num_hidden_layers":4,"num_attention_heads":4},"data":{"source":"fixture",
        "sequence_length":64,"cache_folder":")" +
        (folder / "cache").native() + R"("},"train":{"steps":3,"warmup_steps":0,"batch_size":4,
        "validation_every_steps":0},"fsdp":{"shared_memory":false,"strategy":")" +
        strategy + R"("},"checkpoint":{"every_steps":0,"folder":")" + (folder / "checkpoints").native() + "\"}}");
    const RankPlan plan = plan_rank(config, place_of(2));
    const Measured real = measured(config, 2);
    const auto planned = static_cast<double>(plan.tensor_bytes()), needed = static_cast<double>(real.tensor_bytes);
    EXPECT_NEAR(planned, needed, 0.005 * needed) << strategy;
    const std::int64_t states = plan.parameter_bytes + plan.gradient_bytes + plan.state_bytes;
    const double share = strategy == std::string("no_shard") ? 16.0 : 8.0;
    const auto parameters = static_cast<double>(plan.parameter_count);
    EXPECT_NEAR(static_cast<double>(states), share * parameters, 0.005 * share * parameters) << strategy;
    std::printf(
        "%s: %lld parameters, 16 bytes each over 2 ranks are %.1f MiB; weights, gradients and states %.1f MiB; "
        "planned peak %.1f MiB, measured %.1f MiB\n",
        strategy, static_cast<long long>(plan.parameter_count), static_cast<double>(plan.estimate(16)) / (1 << 20),
        static_cast<double>(states) / (1 << 20), planned / (1 << 20), needed / (1 << 20));
  }
}

// Six blocks of 128 in fp32, four rows of 128 tokens a rank: an input is 256 KiB.
TEST(Plan, ActivationsOnTheHostAreTheInputsOfTheBlocks) {
  const auto of = [](const std::string& offload) {
    const TemporaryFolder folder;
    const RunConfig config =
        config_of(folder, {.train = R"(,"batch_size":8)", .fsdp = R"(,"activation_checkpointing":"block")" + offload});
    return plan_rank(config, place_of(2), PlanFor::kGpus);
  };
  const RankPlan kept = of(""), on_host = of(R"(,"activation_offload":true)"),
                 all = of(R"(,"activation_offload":true,"activation_checkpointing_keeps":"both")");
  constexpr std::int64_t kInput = 4 * 128 * 128 * 4;
  EXPECT_EQ(kept.host_activation_bytes, 0);
  EXPECT_EQ(on_host.host_activation_bytes, 6 * kInput);
  EXPECT_GT(all.host_activation_bytes, 5 * on_host.host_activation_bytes);
  // One input comes while another is in use. Its gradient and the last block's output are there either way.
  EXPECT_LE(on_host.activation_bytes, kept.activation_bytes - 3 * kInput);
  EXPECT_EQ(on_host.tensor_bytes() - on_host.activation_bytes, kept.tensor_bytes() - kept.activation_bytes);
}

TEST(Plan, OfOneRankIsAsClose) {
  const TemporaryFolder folder;
  for (const char* precision : {"fp32", "bf16"}) {
    const RunConfig config =
        config_of(folder, {.train = R"(,"batch_size":4,"precision":")" + std::string(precision) + "\""});
    const RankPlan plan = plan_rank(config, place_of(1));
    const auto needed = static_cast<double>(measured(config, 1).tensor_bytes);
    EXPECT_NEAR(static_cast<double>(plan.tensor_bytes()), needed, 0.005 * needed) << precision;
    EXPECT_EQ(plan.wire_bytes, 0);
    EXPECT_EQ(plan.gradient_bytes, plan.parameter_bytes);
    std::filesystem::remove_all(folder / "checkpoints");
  }
}

/// Adapters for the model in `base`, with more members of "train" and "fsdp".
RunConfig adapters_of(const TemporaryFolder& folder, const std::string& train, const std::string& fsdp = "") {
  return parse_run_config(R"({"format":1,"name":"adapters","model":{"pretrained":")" + (folder / "base").native() +
                          R"("},"data":{"source":"fixture","sequence_length":128,"cache_folder":")" +
                          (folder / "cache").native() +
                          R"("},"train":{"steps":3,"warmup_steps":0,"validation_every_steps":0,"lora_rank":4)" + train +
                          R"(},"fsdp":{"shared_memory":false)" + fsdp +
                          R"(},"checkpoint":{"every_steps":0,"folder":")" + (folder / "checkpoints").native() + "\"}}");
}

TEST(Plan, OfAdaptersBesideAQuantisedBaseIsWithinHalfAPercent) {
  const TemporaryFolder folder;
  auto sizes = spec::bind<spec::Llama>(spec::llama(), config_of(folder, {}).values);
  sizes.vocab_size = 257;
  fsdp::Json json = config_json(sizes);
  json["max_position_embeddings"] = sizes.max_position_embeddings;
  write_folder(folder / "base", json, drawn(sizes, 3));
  std::map<std::string, std::int64_t> parameters;
  for (const char* format : {"none", "int8", "nf4"}) {
    for (const auto& [ranks, precision, fsdp] :
         {std::tuple(2, "bf16", R"(,"activation_checkpointing":"block")"), std::tuple(1, "fp32", ""),
          std::tuple(2, "fp32", R"(,"strategy":"zero1")"), std::tuple(2, "fp16", R"(,"prefetch_depth":2)")}) {
      SCOPED_TRACE(std::string(format) + ", " + precision + fsdp);
      const RunConfig config = adapters_of(
          folder,
          R"(,"batch_size":4,"precision":")" + std::string(precision) + R"(","quantize_base":")" + format + "\"", fsdp);
      const RankPlan plan = plan_rank(config, place_of(ranks));
      const Measured real = measured(config, ranks);
      const auto planned = static_cast<double>(plan.tensor_bytes()), needed = static_cast<double>(real.tensor_bytes);
      EXPECT_NEAR(planned, needed, 0.005 * needed);
      EXPECT_EQ(plan.wire_bytes, real.wire_bytes);
      if (precision == std::string("bf16")) parameters[format] = plan.parameter_bytes;
      std::filesystem::remove_all(folder / "checkpoints");
    }
  }
  EXPECT_LT(parameters["int8"], 0.6 * static_cast<double>(parameters["none"]));
  EXPECT_LT(parameters["nf4"], 0.4 * static_cast<double>(parameters["none"]));
}

/// The shape of Llama-2-7B.
RunConfig large(const TemporaryFolder& folder) {
  return parse_run_config(
      R"({"format":1,"name":"large","model":{"max_position_embeddings":4096,"hidden_size":4096,
      "intermediate_size":11008,"num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,
      "vocab_size":32000,"tie_word_embeddings":false},
      "data":{"source":"fixture","sequence_length":4096,"cache_folder":")" +
      (folder / "cache").native() + R"("},"train":{"steps":5,"batch_size":256,"micro_batch_size":1,"precision":"bf16"},
      "checkpoint":{"asynchronous":true,"folder":")" +
      (folder / "checkpoints").native() + "\"}}");
}

// Llama-2-7B has 6,476,005,376 weights in the layers of its blocks, and 262,410,240 others, which stay in bf16.
TEST(Plan, OfLlama2InNf4KeepsTheBaseInLessThanFourAndAHalfGigabytesOnAllRanks) {
  const TemporaryFolder folder;
  std::filesystem::create_directories(folder / "base");
  write_file(folder / "base/config.json",
             R"({"model_type":"llama","vocab_size":32000,"hidden_size":4096,"intermediate_size":11008,
             "num_hidden_layers":32,"num_attention_heads":32,"num_key_value_heads":32,"max_position_embeddings":4096,
             "rms_norm_eps":1e-5})");
  const auto bytes = [&](const char* format, int ranks) {
    const RunConfig config =
        adapters_of(folder, R"(,"batch_size":8,"precision":"bf16","quantize_base":")" + std::string(format) + "\"");
    const RankPlan plan = plan_memory(config, place_of(ranks), PlanFor::kGpus);
    return std::pair(static_cast<double>(plan.parameter_bytes) * ranks, static_cast<double>(plan.tensor_bytes()));
  };
  constexpr double kOfLayers = 6'476'005'376, kOthers = 262'410'240, kAdapters = 2.0 * 32 * (4 * 4096 + 4 * 4096);
  for (const int ranks : {1, 8}) {
    const auto [nf4, nf4_rank] = bytes("nf4", ranks);
    const auto [int8, int8_rank] = bytes("int8", ranks);
    const auto [bf16, bf16_rank] = bytes("none", ranks);
    EXPECT_NEAR(nf4, kOfLayers * 4.5 / 8 + kOthers * 2 + kAdapters * 4, 0.001 * nf4);
    EXPECT_LE(nf4, 4.5e9);
    EXPECT_NEAR(int8, kOfLayers * 8.125 / 8 + kOthers * 2 + kAdapters * 4, 0.001 * int8);
    EXPECT_NEAR(bf16, (kOfLayers + kOthers) * 2 + kAdapters * 4, 0.001 * bf16);
    std::printf(
        "Llama-2-7B on %d ranks: the base takes %.2f GB in nf4, %.2f GB in int8 and %.2f GB in bf16 over all; a "
        "rank %.2f, %.2f and %.2f GB of tensors at the peak\n",
        ranks, nf4 / 1e9, int8 / 1e9, bf16 / 1e9, nf4_rank / 1e9, int8_rank / 1e9, bf16_rank / 1e9);
  }
}

TEST(Plan, SaysWhatAGraphOfAStepKeepsBetweenSteps) {
  const TemporaryFolder folder;
  const auto graph_bytes = [&](const char* on) {
    const RankPlan plan =
        plan_rank(config_of(folder, {.train = std::string(R"(,"batch_size":4,"cuda_graph":)") + on}), place_of(1));
    EXPECT_GT(plan.activation_bytes, 0);
    return std::pair(plan.graph_bytes, plan.activation_bytes);
  };
  EXPECT_EQ(graph_bytes("false").first, 0);
  const auto [graph, activations] = graph_bytes("true");
  EXPECT_EQ(graph, activations);
}

TEST(Plan, OfALargeModelNeedsNoMemory) {
  const TemporaryFolder folder;
  const std::int64_t before = base::process_memory().resident_bytes;
  const RankPlan plan = plan_rank(large(folder), place_of(64, 8));
  EXPECT_LT(base::process_memory().resident_bytes - before, 200 << 20);
  constexpr double kParameters = 6'738'415'616;
  EXPECT_EQ(plan.parameter_count, static_cast<std::int64_t>(kParameters));
  const auto shard = static_cast<double>(plan.parameter_bytes);
  EXPECT_NEAR(shard, 4 * kParameters / 64, 0.001 * shard);
  EXPECT_EQ(plan.gradient_bytes, plan.parameter_bytes);
  EXPECT_EQ(plan.state_bytes, 2 * plan.parameter_bytes);
  EXPECT_EQ(plan.snapshot_bytes, 3 * plan.parameter_bytes);
  EXPECT_EQ(plan.estimate(16), static_cast<std::int64_t>(kParameters) * 16 / 64);
  EXPECT_EQ(plan.split.accumulation, 4);
  // bf16 gathered twice a micro-batch, and fp32 gradients reduced once a step.
  const double wire = kParameters * (2 * 2 * 4 + 4) * 63 / 64;
  EXPECT_NEAR(static_cast<double>(plan.wire_bytes), wire, 0.03 * wire);
}

// NCCL's buffers are no tensors. The parts of peers that sockets receive were 63/64 of the root's gradients.
TEST(Plan, OfGpusCountsNoBuffersOfCollectives) {
  const TemporaryFolder folder;
  const RunConfig config = large(folder);
  const auto pool = [&](const agent::rank::RankEnvironment& place, PlanFor ranks) {
    const std::int64_t bytes = plan_rank(config, place, ranks).pool_bytes;
    EXPECT_EQ(plan_memory(config, place, ranks).pool_bytes, bytes);
    return static_cast<double>(bytes);
  };
  const double one_node = pool(place_of(8), PlanFor::kGpus), eight_nodes = pool(place_of(64, 8), PlanFor::kGpus);
  EXPECT_NEAR(eight_nodes, one_node, 0.001 * one_node) << "gathered units and gradients, whatever the number of ranks";
  const double over_sockets = pool(place_of(64, 8), PlanFor::kCpus);
  const double largest_unit = 4.0 * 202'383'360;  // a block, in fp32
  EXPECT_NEAR(over_sockets - eight_nodes, largest_unit * 63 / 64, 0.01 * largest_unit);
}

/// The shape of Llama-3: 8B and 70B.
RunConfig llama3(const TemporaryFolder& folder, bool is_large, const char* tied = "false") {
  const std::string sizes = is_large ? R"("hidden_size":8192,"intermediate_size":28672,"num_hidden_layers":80,
      "num_attention_heads":64)"
                                     : R"("hidden_size":4096,"intermediate_size":14336,"num_hidden_layers":32,
      "num_attention_heads":32)";
  return parse_run_config(
      R"({"format":1,"name":"llama3","model":{"max_position_embeddings":8192,"num_key_value_heads":8,"vocab_size":128256,
      "tie_word_embeddings":)" +
      std::string(tied) + "," + sizes + R"(},"data":{"source":"fixture","sequence_length":4096,"cache_folder":")" +
      (folder / "cache").native() +
      R"("},"train":{"steps":5,"batch_size":64,"micro_batch_size":1,"precision":"bf16"},
      "fsdp":{"activation_checkpointing":"block"},"checkpoint":{"folder":")" +
      (folder / "checkpoints").native() + "\"}}");
}

// Two units gathered and the gradients of two blocks, or of embedding or head, are there at a time.
TEST(Plan, OfLlama3HasNoMemoryOfEmbeddingAndHeadThatStays) {
  const TemporaryFolder folder;
  const auto pool = [&](bool is_large, const char* tied, int ranks) {
    return static_cast<double>(
        plan_memory(llama3(folder, is_large, tied), place_of(ranks, 8), PlanFor::kGpus).pool_bytes);
  };
  constexpr double kTable8 = 128256.0 * 4096, kBlock8 = 218112000, kTable70 = 128256.0 * 8192, kBlock70 = 855654400;
  for (const char* tied : {"false", "true"}) {
    const double pool8 = pool(false, tied, 64), pool70 = pool(true, tied, 64);
    EXPECT_LE(pool8, 4.0e9) << tied;
    EXPECT_NEAR(pool8, 2 * (kTable8 + kBlock8) + 4 * kTable8, 0.02 * pool8) << tied;
    EXPECT_LE(pool70, 11.0e9) << tied;
    EXPECT_NEAR(pool70, 2 * (kTable70 + kBlock70) + 8 * kBlock70, 0.02 * pool70) << tied;
  }
}

// Kept between steps is a 64th of all parameters, in fp32, with two moments and the reduced gradients.
TEST(Plan, OfLlama3KeepsAShareOfEmbeddingAndHeadAlone) {
  const TemporaryFolder folder;
  const RunConfig config = llama3(folder, false);
  const RankPlan few = plan_memory(config, place_of(8, 8), PlanFor::kGpus);
  const RankPlan many = plan_memory(config, place_of(64, 8), PlanFor::kGpus);
  const auto kept = [](const RankPlan& plan) {
    return static_cast<double>(plan.parameter_bytes + plan.gradient_bytes + plan.state_bytes);
  };
  EXPECT_NEAR(kept(few) / kept(many), 8, 0.01);
  EXPECT_NEAR(kept(many), 16.0 * 8'030'261'248 / 64, 0.01 * kept(many));
}

// A plan against the memory of a GPU is made for GPUs, and so is each remedy.
TEST(Plan, AgainstTheMemoryOfAGpuIsOneForGpus) {
  const TemporaryFolder folder;
  const RunConfig config = large(folder);
  const agent::rank::RankEnvironment place = place_of(64, 8);
  const RankPlan of_gpus = plan_memory(config, place, PlanFor::kGpus);
  const Limit of_gpu{of_gpus.tensor_bytes(), /*of_gpu=*/true, "a test"};
  EXPECT_TRUE(plan_report(config, place, of_gpu).at("fits").as_bool());
  EXPECT_EQ(plan_report(config, place, Limit{0, true, {}}).at("pool_bytes").as_int(), of_gpus.pool_bytes);
  EXPECT_FALSE(plan_report(config, place, {of_gpu.bytes, false, "a test"}).at("fits").as_bool());
}

TEST(Plan, CountsMicroBatchesBeyondThoseItMakes) {
  const TemporaryFolder folder;
  const auto wire = [&](int accumulation) {
    const auto batch = std::to_string(2 * accumulation);
    const RankPlan plan =
        plan_rank(config_of(folder, {.train = R"(,"micro_batch_size":1,"batch_size":)" + batch}), place_of(2));
    return std::pair(plan.wire_bytes, plan.collectives);
  };
  const auto two = wire(2), three = wire(3), nine = wire(9);
  EXPECT_EQ(nine.first - three.first, 6 * (three.first - two.first));
  EXPECT_EQ(nine.second - three.second, 6 * (three.second - two.second));
}

TEST(Plan, DoesNotWaitForTheDelayOfSteps) {
  const TemporaryFolder folder;
  const auto begin = std::chrono::steady_clock::now();
  plan_rank(config_of(folder, {.train = R"(,"batch_size":2,"step_delay_ms":20000)"}), place_of(2));
  EXPECT_LT(std::chrono::steady_clock::now() - begin, std::chrono::seconds(20));
}

TEST(Plan, NeedsNoStepsForATrainingOfEpochs) {
  const TemporaryFolder folder;
  for (const char* schedule : {"step", "cosine", "linear"}) {
    const std::string train = R"(,"schedule":")" + std::string(schedule) + "\"";
    const RankPlan of_steps = plan_rank(run_of(folder, train + R"(,"steps":10)"), place_of(2));
    const RankPlan of_epochs = plan_rank(run_of(folder, train + R"(,"epochs":2)"), place_of(2));
    EXPECT_EQ(of_epochs.tensor_bytes(), of_steps.tensor_bytes()) << schedule;
  }
}

TEST(Plan, RefusesABatchThatTheRanksCannotShare) {
  const TemporaryFolder folder;
  const RunConfig config = config_of(folder, {.train = R"(,"batch_size":7)"});
  EXPECT_THAT(message_of<base::UsageError>([&] { plan_rank(config, place_of(2)); }),
              ::testing::HasSubstr("batch_size"));
}

}  // namespace
}  // namespace worker::testing
