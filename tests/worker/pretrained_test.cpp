// Goal: training starts from the weights of a Hugging Face folder, and a folder that does not fit is told with its
// remedy. Method: folders that are written here. A run from a folder is compared with a run that draws the same
// weights.
#include "train/llama_folder.h"

#include <gmock/gmock.h>

#include <fstream>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "fsdp/initialize.h"
#include "fsdp/json.h"
#include "fsdp/meta_device.h"
#include "fsdp/safetensors.h"
#include "models/llama.h"
#include "rank/errors.h"
#include "train/step_measures.h"
#include "trainer_ranks.h"

namespace worker::testing {
namespace {

using fsdp::Json;
using ::testing::AllOf;
using ::testing::HasSubstr;

Json config_json(const schema::Llama& model) {
  Json json;
  json["model_type"] = "llama";
  json["vocab_size"] = model.vocab_size;
  json["hidden_size"] = model.hidden_size;
  json["intermediate_size"] = model.intermediate_size;
  json["num_hidden_layers"] = model.num_hidden_layers;
  json["num_attention_heads"] = model.num_attention_heads;
  json["num_key_value_heads"] = model.num_key_value_heads;
  json["rms_norm_eps"] = model.rms_norm_eps;
  json["rope_theta"] = model.rope_theta;
  return json;
}

/// The tensors of a model that is drawn with `seed`.
std::vector<std::pair<std::string, at::Tensor>> drawn(const schema::Llama& config, std::uint64_t seed) {
  LlamaForCausalLm model(config);
  fsdp::initialize(model, seed, [&](const std::string& name, const at::Tensor& values, at::Generator& random) {
    model.draw(name, values, random);
  });
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto& item : model.named_parameters()) tensors.emplace_back(item.key(), item.value().detach());
  return tensors;
}

void write_folder(const std::filesystem::path& folder, const Json& config,
                  const std::vector<std::pair<std::string, at::Tensor>>& tensors) {
  std::filesystem::create_directories(folder);
  std::filesystem::remove(folder / "model.safetensors");
  write_file(folder / "config.json", config.dump());
  fsdp::write_safetensors(folder / "model.safetensors", tensors);
}

std::vector<double> losses(const RunConfig& config, int ranks) {
  std::vector<Listener> listeners(static_cast<std::size_t>(ranks));
  train(config, listeners);
  std::vector<double> out;
  for (const auto& step : listeners[0].steps) out.push_back(value_of(step.values, "loss").value_or(-1));
  return out;
}

TEST(Pretrained, TheFirstStepStartsFromTheFolder) {
  for (const int ranks : {1, 2}) {
    const TemporaryFolder folder;
    RunConfig drawing = run_of(folder, R"(,"steps":3)", "", "drawing");
    drawing.model.initializer_range = 0.1;
    write_folder(folder / "model", config_json(drawing.model), drawn(drawing.model, 0));
    RunConfig loading = run_of(folder, R"(,"steps":3)", "", "loading");
    loading.model.pretrained = (folder / "model").native();
    const RunConfig other = run_of(folder, R"(,"steps":3)", "", "other");
    const auto want = losses(drawing, ranks);
    EXPECT_EQ(losses(loading, ranks), want);
    EXPECT_NE(losses(other, ranks), want);
  }
}

TEST(Pretrained, ARunThatGoesOnNeedsNoFolder) {
  const TemporaryFolder folder;
  RunConfig config = run_of(folder, R"(,"steps":2)");
  write_folder(folder / "model", config_json(config.model), drawn(config.model, 7));
  config.model.pretrained = (folder / "model").native();
  EXPECT_EQ(losses(config, 2).size(), 2u);
  std::filesystem::remove_all(folder / "model");
  config.train.steps = 3;
  EXPECT_EQ(losses(config, 2).size(), 1u);
}

std::vector<double> validations(const RunConfig& config, int ranks) {
  std::vector<Listener> listeners(static_cast<std::size_t>(ranks));
  train(config, listeners);
  std::vector<double> out;
  for (const auto& step : listeners[0].steps)
    if (const auto value = value_of(step.values, "validation/loss")) out.push_back(*value);
  return out;
}

TEST(Exported, AModelIsWhereTheNextRunStarts) {
  const TemporaryFolder folder;
  RunConfig first = run_of(folder, R"(,"steps":3,"validation_every_steps":3,"export_file_size":"16KiB")", "", "first");
  first.exports.folder = (folder / "out").native();
  const auto trained = validations(first, 2);
  ASSERT_EQ(trained.size(), 1u);
  EXPECT_TRUE(std::filesystem::exists(folder / "out/model.safetensors.index.json"));
  RunConfig second = run_of(folder, R"(,"steps":1,"validation_every_steps":1)", "", "second");
  second.train.learning_rate = second.train.min_learning_rate = 1e-12;
  second.model.pretrained = first.exports.folder;
  const auto loaded = validations(second, 1);
  ASSERT_EQ(loaded.size(), 1u);
  EXPECT_NEAR(loaded[0], trained[0], 1e-5 * trained[0]);
}

TEST(Exported, AnAttemptThatFindsAllStepsDoneExportsToo) {
  const TemporaryFolder folder;
  RunConfig config = run_of(folder, R"(,"steps":2)");
  losses(config, 1);
  config.exports.folder = (folder / "out").native();
  losses(config, 2);
  EXPECT_TRUE(std::filesystem::exists(folder / "out/model.safetensors"));
  EXPECT_TRUE(std::filesystem::exists(folder / "out/config.json"));
}

TEST(Exported, AFolderThatHoldsOtherFilesIsRefusedBeforeTheFirstStep) {
  const TemporaryFolder folder;
  RunConfig config = run_of(folder, R"(,"steps":2)");
  config.exports.folder = (folder / "out").native();
  write_file(folder / "out/notes.txt", "mine");
  std::vector<Listener> listeners(1);
  std::string error;
  listeners[0].on_failure = [&](const std::string& text) { error = text; };
  train(config, listeners);
  EXPECT_THAT(error, AllOf(HasSubstr("train.export_folder: "), HasSubstr("choose another folder, or empty this one")));
  EXPECT_EQ(listeners[0].steps.size(), 0u);
}

/// What is said of a folder that does not fit a small model. `change` makes it wrong.
class BadFolder : public ::testing::Test {
 protected:
  BadFolder() : config_(run_of(folder_, "")), json_(config_json(config_.model)), tensors_(drawn(config_.model, 1)) {}

  std::string error() {
    write_folder(folder_ / "model", json_, tensors_);
    return error_of_loading();
  }

  std::string error_of_loading() {
    const auto model = [&] {
      const fsdp::MetaDeviceGuard guard;
      return std::make_shared<LlamaForCausalLm>(config_.model);
    }();
    fsdp::DeviceMesh alone(nullptr, 0, 1, {});
    fsdp::ShardedModel sharded(model, alone);
    sharded.fully_shard(model);
    try {
      load_llama_folder(folder_ / "model", config_.model, sharded);
      return "no error";
    } catch (const UsageError& error) {
      return error.what();
    }
  }

  const TemporaryFolder folder_;
  RunConfig config_;
  Json json_;
  std::vector<std::pair<std::string, at::Tensor>> tensors_;
};

TEST_F(BadFolder, IsNamedWithValueAndRemedy) {
  EXPECT_EQ(error(), "no error");
  std::filesystem::remove(folder_ / "model/config.json");
  EXPECT_THAT(error_of_loading(), AllOf(HasSubstr("model.pretrained = \"" + (folder_ / "model").native() + "\": "),
                                        HasSubstr("cannot read config.json there; give a folder that")));
  write_file(folder_ / "model/config.json", "{");
  EXPECT_THAT(error_of_loading(), HasSubstr("config.json: "));
}

TEST_F(BadFolder, OfOtherSizesSaysWhatToSet) {
  json_["hidden_size"] = 64;
  json_["rms_norm_eps"] = 1e-6;
  EXPECT_THAT(error(), HasSubstr("other sizes; set model.hidden_size = 64, model.rms_norm_eps = 1e-06"));
}

TEST_F(BadFolder, WithWhatThisLlamaLacksIsRefused) {
  json_["attention_bias"] = true;
  EXPECT_THAT(error(), HasSubstr("has attention_bias = true, and this Llama has false only"));
  json_["attention_bias"] = false;
  json_["rope_scaling"]["rope_type"] = "llama3";
  EXPECT_THAT(error(), HasSubstr("has rope_scaling of type \"llama3\", and this Llama has unscaled RoPE only"));
  json_["rope_scaling"] = nullptr;
  json_["head_dim"] = 16;
  EXPECT_THAT(error(), HasSubstr("has head_dim = 16, and this Llama has hidden_size / num_attention_heads = 8"));
}

TEST_F(BadFolder, WithOtherTensorsNamesThem) {
  tensors_.emplace_back("model.layers.0.self_attn.rotary_emb.inv_freq", at::zeros({4}));
  EXPECT_EQ(error(), "no error") << "a table that old files hold";
  tensors_.emplace_back("model.layers.0.self_attn.q_proj.bias", at::zeros({32}));
  EXPECT_THAT(error(), HasSubstr("the model has no parameter for tensor model.layers.0.self_attn.q_proj.bias"));
  tensors_.pop_back();
  const std::string name = tensors_.front().first;
  tensors_.front().second = at::zeros({2, 2});
  EXPECT_THAT(error(), HasSubstr(name + " is [2, 2], the model wants ["));
  tensors_.erase(tensors_.begin());
  EXPECT_THAT(error(), HasSubstr("no tensor " + name));
}

}  // namespace
}  // namespace worker::testing
