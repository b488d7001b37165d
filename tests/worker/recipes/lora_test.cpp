// Goal: adapters train beside a model that stays as it is, are saved alone, and can be merged into its weights.
// Method: a drawn model in a folder is the base; trainings on it; exports are read back.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <filesystem>

#include "base/usage_error.h"
#include "fsdp/engine/packing.h"
#include "fsdp/files/safetensors.h"
#include "spec/tables/llama_keys.h"
#include "tests/worker/llama_folder.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/train/step_measures.h"

namespace worker::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::map<std::string, at::Tensor> read_all(const std::filesystem::path& file) {
  const fsdp::SafetensorsReader reader(file);
  std::map<std::string, at::Tensor> out;
  for (const auto& [name, entry] : reader.entries()) out[name] = reader.tensor(name).clone();
  return out;
}

/// Trainings on a base model that lies in a folder.
class Lora : public ::testing::Test {
 protected:
  Lora() {
    auto sizes = spec::bind<spec::Llama>(spec::llama(), run_of(folder_, "").values);
    sizes.vocab_size = 257;
    const NamedTensors tensors = drawn(sizes, 3);
    base_.insert(tensors.begin(), tensors.end());
    fsdp::Json config = config_json(sizes);
    config["max_position_embeddings"] = sizes.max_position_embeddings;
    write_folder(folder_ / "base", config, tensors);
  }

  RunConfig run(const std::string& train, const std::string& checkpoints = "checkpoints",
                const std::string& fsdp = "") const {
    return parse_run_config(
        R"({"format":1,"name":"lora","model":{"pretrained":")" + (folder_ / "base").native() +
        R"("},"data":{"source":"fixture","sequence_length":32,"cache_folder":")" + (folder_ / "cache").native() +
        R"("},"train":{"learning_rate":0.01,"batch_size":8,"warmup_steps":0,)"
        R"("validation_every_steps":0,"lora_rank":4)" +
        train + R"(},"fsdp":{"prefetch":true)" + fsdp + R"(},"checkpoint":{"every_steps":0,"folder":")" +
        (folder_ / checkpoints).native() + "\"}}");
  }

  std::vector<double> losses(const RunConfig& config, int ranks, int save_at = 0, std::int64_t attempt = 1) const {
    std::vector<Listener> listeners(static_cast<std::size_t>(ranks));
    listeners[0].save_at = save_at;
    train(config, listeners, attempt);
    std::vector<double> out;
    for (const auto& step : listeners[0].steps) out.push_back(value_of(step.values, "loss").value_or(-1));
    return out;
  }

  /// The weights of a layer as they are kept in this format.
  at::Tensor quantised(const std::string& weight, fsdp::FrozenFormat format) const {
    const at::Tensor& values = base_.at(weight);
    const fsdp::Packing packing(format, values.numel());
    const at::Tensor bytes = at::zeros({packing.bytes()}, at::kByte), out = at::empty({values.numel()});
    packing.quantise(values.reshape({-1}), bytes, 0);
    packing.dequantise(bytes, out);
    return out.view(values.sizes());
  }

  const TemporaryFolder folder_;
  std::map<std::string, at::Tensor> base_;
};

TEST_F(Lora, LearnsAndLeavesTheModelAsItIs) {
  RunConfig config = run(R"(,"steps":30,"export_merged":false)");
  config.exports.folder = (folder_ / "out").native();
  const auto curve = losses(config, 2);
  EXPECT_LT(curve.back(), curve.front() - 0.05);
  const auto adapters = read_all(folder_ / "out/adapter_model.safetensors");
  EXPECT_EQ(adapters.size(), 3U * 2 * 2) << "A and B of two layers in each of three blocks";
  const auto& b = adapters.at("base_model.model.model.layers.0.self_attn.q_proj.lora_B.weight");
  EXPECT_EQ(b.sizes(), (at::IntArrayRef{32, 4}));
  EXPECT_GT(b.abs().max().item<double>(), 0);
  const auto json = fsdp::Json::parse(read_file(folder_ / "out/adapter_config.json"));
  EXPECT_EQ(json.at("r").as_int(), 4);
  EXPECT_EQ(json.at("lora_alpha").as_double(), 8);
  EXPECT_EQ(json.at("target_modules").size(), 2U);
  EXPECT_FALSE(std::filesystem::exists(folder_ / "out/config.json"));
  // A checkpoint holds the adapters and their states: 3 x 2 x (4 x 32 + out x 4) parameters, three times.
  std::uintmax_t bytes = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder_ / "checkpoints"))
    if (entry.path().extension() == ".safetensors") bytes += entry.file_size();
  EXPECT_LT(bytes, 60'000U);
}

TEST_F(Lora, MergedIsTheModelWithItsAdapters) {
  RunConfig config = run(R"(,"steps":5,"export_merged":false)"), merged = run(R"(,"steps":5)");
  config.exports.folder = (folder_ / "apart").native();
  merged.exports.folder = (folder_ / "merged").native();
  losses(config, 1);
  merged.exports.full_state_file = (folder_ / "merged.safetensors").native();
  losses(merged, 2);  // finds all steps done
  const auto adapters = read_all(folder_ / "apart/adapter_model.safetensors");
  const auto whole = read_all(folder_ / "merged/model.safetensors");
  const auto full_state = read_all(folder_ / "merged.safetensors");
  ASSERT_EQ(whole.size(), base_.size());
  EXPECT_EQ(full_state.size(), base_.size());
  for (const auto& [name, value] : whole) {
    EXPECT_TRUE(at::equal(full_state.at(name), value)) << name;
    at::Tensor wanted = base_.at(name);
    const std::string layer = "base_model.model." + name.substr(0, name.size() - std::string(".weight").size());
    if (adapters.contains(layer + ".lora_A.weight"))
      wanted = wanted + 2 * adapters.at(layer + ".lora_B.weight").matmul(adapters.at(layer + ".lora_A.weight"));
    EXPECT_TRUE(at::allclose(value, wanted, 1e-6, 1e-7)) << name;
    EXPECT_EQ(at::equal(value, base_.at(name)),
              name.find("q_proj") == std::string::npos && name.find("v_proj") == std::string::npos)
        << name;
  }
}

TEST_F(Lora, OfTheHeadTrains) {
  RunConfig config = run(R"(,"steps":10,"export_merged":false,"lora_layers":"lm_head")");
  config.exports.folder = (folder_ / "out").native();
  const auto curve = losses(config, 2);
  EXPECT_LT(curve.back(), curve.front() - 0.05);
  const auto adapters = read_all(folder_ / "out/adapter_model.safetensors");
  EXPECT_EQ(adapters.size(), 2U);
  EXPECT_GT(adapters.at("base_model.model.lm_head.lora_B.weight").abs().max().item<double>(), 0);
}

TEST_F(Lora, GoesOnFromItsAdaptersWithRecomputedBlocks) {
  const std::string blocks = R"(,"activation_checkpointing":"block")";
  const auto whole = losses(run(R"(,"steps":8)", "whole", blocks), 2);
  const RunConfig config = run(R"(,"steps":8)", "parts", blocks);
  auto parts = losses(config, 2, /*save_at=*/4);
  ASSERT_EQ(parts.size(), 4U);
  const auto rest = losses(config, 2, 0, 2);
  parts.insert(parts.end(), rest.begin(), rest.end());
  EXPECT_EQ(parts, whole);
  EXPECT_EQ(losses(run(R"(,"steps":8)", "plain"), 2), whole) << "recomputing changes no bit";
}

TEST_F(Lora, GoesOnAtAnotherNumberOfRanks) {
  const auto of_twelve = [&](const std::string& checkpoints) {
    RunConfig config = run(R"(,"steps":8)", checkpoints);
    config.train.batch_size = 12;  // of 2 ranks and of 3
    return config;
  };
  const auto whole = losses(of_twelve("whole"), 2);
  ASSERT_EQ(whole.size(), 8U);
  EXPECT_LT(whole.back(), whole.front() - 0.02) << "the adapters learn";
  const RunConfig config = of_twelve("parts");
  auto parts = losses(config, 2, /*save_at=*/4);
  ASSERT_EQ(parts.size(), 4U);
  const auto rest = losses(config, 3, 0, 2);
  parts.insert(parts.end(), rest.begin(), rest.end());
  EXPECT_THAT(parts, ::testing::Pointwise(::testing::DoubleNear(2e-5), whole));
}

TEST_F(Lora, LearnsBesideAQuantisedBaseAndIsMergedWithIt) {
  const auto whole = losses(run(R"(,"steps":1)", "plain"), 2);
  for (const auto& [name, format] :
       {std::pair("nf4", fsdp::FrozenFormat::kNf4), std::pair("int8", fsdp::FrozenFormat::kInt8)}) {
    SCOPED_TRACE(name);
    const std::string quantised_by = R"(,"quantize_base":")" + std::string(name) + "\"";
    RunConfig apart = run(R"(,"steps":30,"export_merged":false)" + quantised_by, name);
    RunConfig merged = run(R"(,"steps":30)" + quantised_by, name);
    apart.exports.folder = (folder_ / std::string(name) / "apart").native();
    merged.exports.folder = (folder_ / std::string(name) / "merged").native();
    const auto curve = losses(apart, 2);
    losses(merged, 1);  // finds all steps done
    EXPECT_LT(curve.back(), curve.front() - 0.05);
    EXPECT_NE(curve.front(), whole.front());
    EXPECT_NEAR(curve.front(), whole.front(), 0.05);
    const auto adapters = read_all(folder_ / std::string(name) / "apart/adapter_model.safetensors");
    for (const auto& [weight, value] : read_all(folder_ / std::string(name) / "merged/model.safetensors")) {
      const bool is_of_layer = weight.ends_with("_proj.weight");
      at::Tensor wanted = is_of_layer ? quantised(weight, format) : base_.at(weight);
      const std::string layer = "base_model.model." + weight.substr(0, weight.size() - std::string(".weight").size());
      if (adapters.contains(layer + ".lora_A.weight"))
        wanted = wanted + 2 * adapters.at(layer + ".lora_B.weight").matmul(adapters.at(layer + ".lora_A.weight"));
      EXPECT_TRUE(at::allclose(value, wanted, 1e-6, 1e-7)) << weight;
      EXPECT_EQ(at::equal(value, base_.at(weight)), !is_of_layer) << weight;
    }
  }
}

TEST_F(Lora, GoesOnBesideAQuantisedBaseWithTheSameBits) {
  const std::string nf4 = R"(,"steps":8,"quantize_base":"nf4")", blocks = R"(,"activation_checkpointing":"block")";
  const auto whole = losses(run(nf4, "whole", blocks), 2);
  const RunConfig config = run(nf4, "parts", blocks);
  auto parts = losses(config, 2, /*save_at=*/4);
  ASSERT_EQ(parts.size(), 4U);
  const auto rest = losses(config, 2, 0, 2);
  parts.insert(parts.end(), rest.begin(), rest.end());
  EXPECT_EQ(parts, whole);
  EXPECT_EQ(losses(run(nf4, "plain"), 2), whole) << "recomputing changes no bit";
  EXPECT_THAT(losses(run(nf4, "alone"), 1), ::testing::Pointwise(::testing::DoubleNear(2e-5), whole));
}

TEST_F(Lora, OfABaseInAnotherFormatIsRefused) {
  losses(run(R"(,"steps":2,"quantize_base":"nf4")"), 1);
  for (const char* then : {R"(,"steps":4)", R"(,"steps":4,"quantize_base":"int8")"}) {
    std::vector<Listener> listeners(1);
    std::string error;
    listeners[0].on_failure = [&](const std::string& text) { error = text; };
    train(run(then), listeners, 2);
    EXPECT_THAT(error,
                AllOf(HasSubstr("train.quantize_base = \""),
                      HasSubstr("the adapters were trained beside a base in \"nf4\", whose values differ; set it "
                                "to that, or use a new checkpoint.folder")));
  }
}

TEST_F(Lora, OfAnotherModelIsRefused) {
  losses(run(R"(,"steps":2)"), 1);
  NamedTensors tensors(base_.begin(), base_.end());
  for (auto& [name, value] : tensors) value = value.to(at::kBFloat16);
  std::filesystem::remove(folder_ / "base/model.safetensors");
  fsdp::write_safetensors(folder_ / "base/model.safetensors", tensors);
  std::vector<Listener> listeners(1);
  std::string error;
  listeners[0].on_failure = [&](const std::string& text) { error = text; };
  train(run(R"(,"steps":4)"), listeners, 2);
  EXPECT_THAT(error, AllOf(HasSubstr("model.pretrained = \"" + (folder_ / "base").native() +
                                     "\": the adapters were "
                                     "trained with other files"),
                           HasSubstr("restore them, or use a new checkpoint.folder")));
}

TEST_F(Lora, NamesALayerThatTheModelLacks) {
  std::vector<Listener> listeners(1);
  std::string error;
  listeners[0].on_failure = [&](const std::string& text) { error = text; };
  train(run(R"(,"steps":1,"lora_layers":"q_proj query_key_value")"), listeners);
  EXPECT_EQ(
      error,
      "train.lora_layers: the model has no linear layer \"query_key_value\"; it has down_proj, gate_proj, k_proj, "
      "lm_head, o_proj, q_proj, up_proj, v_proj");
}

}  // namespace
}  // namespace worker::testing
