// Goal: MODEL may be what people have: a folder of Hugging Face, the checkpoints of a training by any number of ranks,
// or one of them; and a folder that is none of these, or a damaged one, is told by name. Method: small models that are
// written here, and a training of two ranks with the engine.
#include "worker/infer/model_source.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/full_like.h>
#include <ATen/ops/ones.h>
#include <gmock/gmock.h>

#include <cmath>
#include <functional>

#include "base/usage_error.h"
#include "fsdp/engine/fully_shard.h"
#include "tests/fsdp/ranks.h"
#include "tests/manifest_text.h"
#include "tests/worker/infer/small_models.h"
#include "worker/adapters/low_rank.h"

namespace infer::testing {
namespace {

using fsdp::Json;
using test::TemporaryFolder;
using test::write_file;
using ::testing::AllOf;
using ::testing::HasSubstr;
namespace fs = std::filesystem;

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const base::UsageError& error) {
    return error.what();
  } catch (const std::exception& error) {
    return std::string("another exception: ") + error.what();
  }
  return "(nothing was thrown)";
}

std::string refusal_of(const Options& options) {
  return refusal([&] { printed(options, {"ab"}); });
}

/// A run file as musterd writes it for a recipe of today.
std::string run_json(const Json& config) {
  Json run;
  run["format"] = 1;
  run["name"] = "small";
  run["recipe"] = "causal_lm";
  run["model"] = config;
  run["model"].as_object().erase("model_type");
  run["model"].as_object().erase("vocab_size");  // 0: what the data needs
  run["model"]["family"] = config.at("model_type");
  return run.dump();
}

/// Trains at two ranks and saves steps 1, 2 and 3. Returns the model of each, whole.
std::vector<std::shared_ptr<worker::CausalModel>> train(const fs::path& folder, const Json& config, const Json& extra) {
  std::vector<std::shared_ptr<worker::CausalModel>> steps;
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    const auto model = drawn(config);
    fsdp::ShardedModel sharded(model, mesh);
    const auto shard = [&](const std::shared_ptr<torch::nn::Module>& module, worker::CallWrapper& wrapper) {
      wrapper = [unit = sharded.fully_shard(module)](worker::Tensors inputs, const worker::Forward& forward) {
        return unit->run_list(std::move(inputs), forward);
      };
    };
    for (const auto& block : model->blocks()) shard(block, block->wrapper);
    shard(model, model->wrapper);
    fsdp::AdamW optimizer(sharded);
    fsdp::CheckpointOptions options;
    options.folder = folder;
    options.keep = 5;
    fsdp::Checkpointer checkpointer(sharded, optimizer, options);
    const at::Tensor ids = at::arange(40).view({4, 10});
    for (int step = 1; step <= 3; ++step) {
      sharded.zero_grad();
      model->loss(ids.narrow(0, 2 * mesh.rank(), 2), ids.narrow(0, 2 * mesh.rank(), 2) + 1).backward();
      optimizer.step(/*lr=*/0.1);
      fsdp::CheckpointState saved;
      saved.step = step;
      saved.extra = extra;
      checkpointer.save(saved);
      const auto state = sharded.gather_full_state();
      if (mesh.rank() != 0) continue;
      const at::NoGradGuard no_grad;
      steps.push_back(drawn(config));
      for (auto& item : steps.back()->named_parameters()) item.value().copy_(state.at(item.key()));
    }
  });
  return steps;
}

class InferSource : public ::testing::Test {
 protected:
  const TemporaryFolder folder_;
  const fs::path model_ = folder_ / "model";
  const Options of_model_{.model = model_, .device = "cpu", .max_new_tokens = 6};
};

TEST_F(InferSource, AFolderOfHuggingFaceGivesWhatItsModelGives) {
  for (const char* family : {"llama", "gpt_neox"}) {
    const auto model = drawn(small_config(family));
    write_model(model_, small_config(family), tensors_of(*model));
    EXPECT_EQ(generated(of_model_, "abc"), continued(*model, "abc", 6)) << family;
  }
}

TEST_F(InferSource, ABaseModelsNamesAndAFileOfBf16AreRead) {
  const auto model = drawn(small_config());
  Tensors tensors;
  for (auto& [name, value] : tensors_of(*model)) {
    const at::Tensor rounded = value.to(at::kBFloat16);
    value.copy_(rounded);
    tensors.emplace_back(name == "lm_head.weight" ? name : name.substr(std::string("model.").size()), rounded);
  }
  write_model(model_, small_config(), tensors);
  EXPECT_EQ(generated(of_model_, "abc"), continued(*model, "abc", 6));
}

TEST_F(InferSource, ACheckpointOfTwoRanksGivesWhatWasTrained) {
  const auto checkpoints = folder_ / "job/checkpoints";
  const auto steps = train(checkpoints, small_config("gpt_neox"), Json::parse(R"({"best": {"step": 2}})"));
  ASSERT_EQ(steps.size(), 3U);
  write_file(folder_ / "job/attempt-9/run.json", "{}");
  write_file(folder_ / "job/attempt-10/run.json", run_json(small_config("gpt_neox")));
  Options options{.model = checkpoints, .device = "cpu", .max_new_tokens = 6};
  const auto expect_step = [&](std::size_t step) {
    EXPECT_EQ(generated(options, "abc"), continued(*steps[step - 1], "abc", 6)) << "step " << step;
  };
  expect_step(3);
  options.best = true;
  expect_step(2);
  options.best = false;
  options.step = 1;
  expect_step(1);
  options.step.reset();
  options.model = checkpoints / "step-00000001/";
  expect_step(1);
  EXPECT_NE(continued(*steps[0], "abc", 6), continued(*steps[2], "abc", 6)) << "steps differ";
  options.step = 3;
  EXPECT_THAT(refusal_of(options), HasSubstr("is one checkpoint; leave --step"));
  options.model = checkpoints;
  options.step = 7;
  EXPECT_THAT(refusal_of(options), HasSubstr("has no whole checkpoint of that step; it has 3, 2, 1"));
  options.step.reset();
  options.part = "teacher";
  EXPECT_THAT(refusal_of(options), HasSubstr("has no part teacher"));
}

TEST_F(InferSource, ACheckpointThatDescribesItsModelNeedsNoRunFile) {
  Json extra;
  extra["model"]["config"] = small_config();
  const auto steps = train(model_, small_config(), extra);
  EXPECT_EQ(generated(of_model_, "abc"), continued(*steps[2], "abc", 6));
  const Source source = open_source(of_model_);
  EXPECT_EQ(source.name(), "llama, step 3 of " + model_.native());
  EXPECT_EQ(source.tokenizer->kind(), "bytes");
}

TEST_F(InferSource, ARunsValuesInTheCheckpointDescribeItsModelToo) {
  const Json config = small_config();
  Json extra;
  for (const auto& [name, value] : config.as_object())
    if (name != "model_type" && name != "vocab_size") extra["run"]["model." + name] = value;
  extra["run"]["model.family"] = "llama";
  const auto steps = train(model_, small_config(), extra);
  EXPECT_EQ(generated(of_model_, "abc"), continued(*steps[2], "abc", 6));
}

TEST_F(InferSource, ACheckpointWithoutADescriptionSaysHowToGiveOne) {
  const auto steps = train(model_, small_config(), {});
  EXPECT_THAT(refusal_of(of_model_),
              AllOf(HasSubstr("step-00000003 does not say which model"), HasSubstr("--run-file")));
  Options given = of_model_;
  given.run_file = folder_ / "elsewhere.json";
  write_file(given.run_file, run_json(small_config()));
  EXPECT_EQ(generated(given, "abc"), continued(*steps[2], "abc", 6));
  Json other = small_config();
  other["hidden_size"] = 32;
  write_file(given.run_file, run_json(other));
  EXPECT_THAT(refusal_of(given), AllOf(HasSubstr("step-00000003 is of another model"), HasSubstr("another shape")));
  write_file(given.run_file, R"({"model": {"hidden_size": "wide"}})");
  EXPECT_THAT(refusal_of(given),
              AllOf(HasSubstr("elsewhere.json: model.hidden_size"), HasSubstr("want a whole number")));
  given.best = true;
  EXPECT_THAT(refusal_of(given), HasSubstr("knows of no best one"));
}

/// A small model with adapters on two of its layers, and its base in a folder.
class InferAdapters : public InferSource {
 protected:
  InferAdapters() { write_model(base_, small_config(), tensors_of(*drawn(small_config()))); }

  std::shared_ptr<worker::CausalModel> adapted() const {
    auto model = drawn(small_config());
    EXPECT_EQ(worker::add_adapters(*model, shape_, /*dropout=*/0, "adapters").size(), 4U) << "two in each block";
    const at::NoGradGuard no_grad;
    for (auto& item : model->named_parameters()) {
      at::Tensor values = item.value();
      values.requires_grad_(worker::is_of_adapter(item.key()));
      if (worker::is_of_adapter(item.key())) values.copy_(at::arange(values.numel()).view_as(values).sin());
    }
    return model;
  }
  Tensors adapters() const {
    Tensors out;
    for (const auto& [name, value] : tensors_of(*adapted()))
      if (worker::is_of_adapter(name)) out.emplace_back(std::string(worker::kPeftPrefix) + name, value);
    return out;
  }
  Json peft_config() const {
    Json config = worker::adapters_json(shape_);
    config["base_model_name_or_path"] = base_.native();
    return config;
  }
  void write_peft(const Json& config) const {
    fs::create_directories(model_);
    fs::remove(model_ / "adapter_model.safetensors");
    write_file(model_ / worker::kAdapterConfigFile, config.dump());
    fsdp::write_safetensors(model_ / "adapter_model.safetensors", adapters());
  }

  const worker::LowRank shape_{.rank = 3, .alpha = 6, .layers = {"q_proj", "down_proj"}};
  const fs::path base_ = folder_ / "base";
};

TEST_F(InferAdapters, InACheckpointAreUsedWithTheModelTheyBelongTo) {
  run_ranks(2, [&](fsdp::DeviceMesh& mesh) {
    const auto model = adapted();
    fsdp::ShardedModel sharded(model, mesh);
    sharded.fully_shard(model);
    fsdp::AdamW optimizer(sharded);
    fsdp::CheckpointOptions options;
    options.folder = model_;
    fsdp::CheckpointState state;
    state.step = 1;
    state.extra["model"]["config"] = small_config();
    state.extra[worker::kAdaptersOfExtra] = worker::adapters_json(shape_);
    state.extra["pretrained"]["folder"] = base_.native();
    state.extra["pretrained"]["fingerprint"] = worker::fingerprint_of(base_);
    fsdp::Checkpointer({{"model", sharded, &optimizer, worker::is_of_adapter}}, options).save(state);
  });
  const auto want = continued(*adapted(), "abc", 6);
  EXPECT_EQ(generated(of_model_, "abc"), want);
  Options of_base = of_model_;
  of_base.model = base_;
  EXPECT_NE(generated(of_base, "abc"), want) << "adapters that change nothing prove nothing";
  write_model(base_, small_config(), {{"other", at::ones({1})}});
  EXPECT_THAT(refusal_of(of_model_),
              AllOf(HasSubstr("were trained with other files than those that are in " + base_.native()),
                    HasSubstr("restore the files")));
}

TEST_F(InferAdapters, OfPeftAreUsedWithTheModelTheyName) {
  write_peft(peft_config());
  EXPECT_EQ(generated(of_model_, "abc"), continued(*adapted(), "abc", 6));

  const auto refused = [&](const char* member, const Json& value) {
    Json config = peft_config();
    config[member] = value;
    write_peft(config);
    return refusal_of(of_model_);
  };
  EXPECT_THAT(refused("base_model_name_or_path", Json("someone/model")),
              AllOf(HasSubstr("adapter_config.json: base_model_name_or_path is \"someone/model\""),
                    HasSubstr("write the folder of the model there")));
  EXPECT_THAT(refused("use_dora", Json(true)), HasSubstr("use_dora is true, and only false is supported"));
  EXPECT_THAT(refused("peft_type", Json("LOHA")), HasSubstr("peft_type is \"LOHA\", and only \"LORA\" is supported"));
  EXPECT_THAT(refused("layer_replication", Json(Json::Array{Json(1)})),
              HasSubstr("layer_replication is [1], and this program does not know whether that changes"));
  EXPECT_THAT(refused("target_modules", Json("all-linear")), HasSubstr("want the names of layers"));
  EXPECT_THAT(refused("r", Json(0)), HasSubstr("r is 0; want a whole number above 0"));
  Json::Array fewer{Json("q_proj")};
  EXPECT_THAT(refused("target_modules", Json(fewer)), HasSubstr("down_proj.lora_A.weight"));
}

TEST_F(InferSource, ADamagedCheckpointIsNamed) {
  Json extra;
  extra["model"]["config"] = small_config();
  train(model_, small_config(), extra);
  const auto file = model_ / "step-00000003/rank-00001-of-00002.safetensors";
  auto bytes = test::read_file(file);
  bytes[bytes.size() / 2] = static_cast<char>(bytes[bytes.size() / 2] ^ 1);
  write_file(file, bytes);
  EXPECT_THAT(refusal_of(of_model_), AllOf(HasSubstr("step-00000003"), HasSubstr("rank-00001-of-00002")));
  fs::resize_file(file, bytes.size() - 8);
  Options one = of_model_;
  one.model = model_ / "step-00000003";
  EXPECT_THAT(refusal_of(one), HasSubstr("rank-00001-of-00002"));
  EXPECT_THAT(printed(of_model_, {"a"}).notes, HasSubstr("step 2 of")) << "the newest whole one";
}

TEST_F(InferSource, ACheckpointOfALaterProgramIsToldAndNotPassedOver) {
  Json extra;
  extra["model"]["config"] = small_config();
  train(model_, small_config(), extra);
  const fs::path newest = model_ / "step-00000003";
  std::string manifest = test::read_file(newest / "manifest.json");
  const std::string version = "\"version\": ";
  manifest.replace(manifest.find(version) + version.size(), 1, "9");
  test::write_manifest(newest / "manifest.json", manifest);
  const auto told = HasSubstr(newest.native() + " has format version 9, and this program reads versions 1 to ");
  EXPECT_THAT(refusal_of(of_model_), AllOf(told, HasSubstr("give an older one by --step")));
  Options one = of_model_;
  one.model = newest;
  EXPECT_THAT(refusal_of(one), told);
  Options older = of_model_;
  older.step = 2;
  EXPECT_THAT(printed(older, {"a"}).notes, HasSubstr("step 2 of"));
}

TEST_F(InferSource, AFolderThatIsNoModelIsNamed) {
  EXPECT_THAT(refusal_of(of_model_), HasSubstr(model_.native() + " is no folder"));
  fs::create_directories(model_);
  EXPECT_THAT(refusal_of(of_model_), HasSubstr("has neither a config.json nor a checkpoint step-N"));
  fs::create_directories(model_ / "step-00000001");
  EXPECT_THAT(refusal_of(of_model_), AllOf(HasSubstr("no whole checkpoint"), HasSubstr("step-00000001: no manifest")));
}

TEST_F(InferSource, AConfigThatIsWrongIsNamed) {
  const auto config = [&](const std::string& text) {
    write_file(model_ / "config.json", text);
    return refusal_of(of_model_);
  };
  EXPECT_THAT(config("{\"model_type\": "), AllOf(HasSubstr("config.json"), HasSubstr("repair it")));
  EXPECT_THAT(config("[]"), HasSubstr("config.json"));
  EXPECT_THAT(config("{}"), HasSubstr("has no model_type"));
  EXPECT_THAT(config(R"({"model_type": "mamba"})"), AllOf(HasSubstr("\"mamba\""), HasSubstr("llama, gpt_neox")));
  EXPECT_THAT(config(R"({"model_type": "llama", "hidden_size": -4})"), HasSubstr("hidden_size = -4"));
  EXPECT_THAT(config(R"({"model_type": "llama", "hidden_act": "gelu"})"), HasSubstr("hidden_act"));
  EXPECT_THAT(config(std::string(2 << 20, ' ')), HasSubstr("config.json: 2097152 bytes, more than the 1048576 that"));
}

TEST(InferRunFile, WithoutAFamilyIsOfTheRecipesFirstOne) {
  const auto family_of = [](const char* run) { return described_by_run(Json::parse(run)).family->name; };
  EXPECT_EQ(family_of(R"({"model": {}})"), "llama");
  EXPECT_EQ(family_of(R"({"recipe": "seq2seq"})"), "t5");
  EXPECT_EQ(family_of(R"({"recipe": "dino", "model": {"hidden_size": 64}})"), "dinov2");
  EXPECT_EQ(family_of(R"({"recipe": "causal_lm", "model": {"family": "gpt_neox"}})"), "gpt_neox");
  try {
    family_of(R"({"recipe": "gan"})");
    ADD_FAILURE() << "an unknown recipe was taken";
  } catch (const std::invalid_argument& error) {
    EXPECT_THAT(error.what(), HasSubstr("recipe = \"gan\": there is no such recipe"));
  }
}

TEST_F(InferSource, WeightsThatDoNotFitAreNamed) {
  auto tensors = tensors_of(*drawn(small_config()));
  write_model(model_, small_config(), tensors);
  fs::remove(model_ / "model.safetensors");
  EXPECT_THAT(refusal_of(of_model_), HasSubstr("model.safetensors"));
  auto fewer = tensors;
  fewer.pop_back();
  write_model(model_, small_config(), fewer);
  EXPECT_THAT(refusal_of(of_model_), HasSubstr(tensors.back().first));
  auto other = tensors;
  other[0].second = other[0].second.narrow(0, 0, 200).contiguous();
  write_model(model_, small_config(), other);
  EXPECT_THAT(refusal_of(of_model_), HasSubstr(tensors[0].first));
  auto more = tensors;
  more.emplace_back("extra.weight", at::ones({2}));
  write_model(model_, small_config(), more);
  EXPECT_THAT(refusal_of(of_model_), HasSubstr("extra.weight"));
  write_file(model_ / "model.safetensors", "not a file of tensors");
  EXPECT_THAT(refusal_of(of_model_), HasSubstr("model.safetensors"));
  auto damaged = tensors;
  damaged[0].second = at::full_like(damaged[0].second, NAN);
  write_model(model_, small_config(), damaged);
  EXPECT_THAT(refusal([&] {
                try {
                  printed(of_model_, {"ab"});
                } catch (const std::invalid_argument& error) {
                  throw base::UsageError(error.what());
                }
              }),
              HasSubstr("logits are not numbers"));
}

TEST_F(InferSource, ATokenizerMustFitTheModel) {
  Json config = small_config();
  config["vocab_size"] = 300;
  write_model(model_, config, tensors_of(*drawn(config)));
  EXPECT_THAT(refusal_of(of_model_), AllOf(HasSubstr("has no tokenizer"), HasSubstr("--tokenizer")));
  Options bytes = of_model_;
  bytes.tokenizer = "bytes";
  EXPECT_EQ(generated(bytes, "abc").size(), 6U) << "a model may have more tokens";
  bytes.tokenizer = (folder_ / "none").native();
  EXPECT_THAT(refusal_of(bytes), HasSubstr("none"));
  config["vocab_size"] = 100;
  write_model(model_, config, tensors_of(*drawn(config)));
  EXPECT_THAT(refusal_of(of_model_), HasSubstr("the tokenizer has 257 tokens and the model 100"));
}

TEST_F(InferSource, EndsAreThoseOfTheFilesOrTheTokenizers) {
  write_model(model_, small_config(), tensors_of(*drawn(small_config())));
  EXPECT_EQ(ends_of(open_source(of_model_)), std::vector<std::int64_t>{256});
  Json config = small_config();
  config["eos_token_id"] = 7;
  write_file(model_ / "config.json", config.dump());
  EXPECT_EQ(ends_of(open_source(of_model_)), std::vector<std::int64_t>{7});
  write_file(model_ / "generation_config.json", R"({"eos_token_id": [3, 5]})");
  EXPECT_EQ(ends_of(open_source(of_model_)), (std::vector<std::int64_t>{3, 5}));
}

TEST_F(InferSource, EndsOfACheckpointAreThoseThatItsTrainingStartedWith) {
  Json extra;
  extra["model"]["config"] = small_config();
  extra["model"]["config"]["eos_token_id"] = 7;
  train(folder_ / "plain", small_config(), extra);
  extra["model"][worker::kGenerationOfExtra] = Json::parse(R"({"eos_token_id": [3, 5]})");
  train(model_, small_config(), extra);
  Options plain = of_model_;
  plain.model = folder_ / "plain";
  EXPECT_EQ(ends_of(open_source(plain)), std::vector<std::int64_t>{7});
  EXPECT_EQ(ends_of(open_source(of_model_)), (std::vector<std::int64_t>{3, 5}));
}

}  // namespace
}  // namespace infer::testing
