// Goal: the family that docs/new-recipe.md explains is one file and works everywhere a decoder does: it trains, with
// adapters too, its export is read back, and muster-infer writes text with it.
// Method: the example's file is built here, and its row and table are registered for a while.
#include <ATen/ATen.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <filesystem>
#include <map>

#include "base/usage_error.h"
#include "fsdp/files/safetensors.h"
#include "spec/recipes.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/infer/infer_model.h"
#include "worker/models/config_json.h"
#include "worker/models/family.h"
#include "worker/train/step_measures.h"

// Functions of examples/new-family/opt.cpp.
namespace spec {
const Table& opt();
}
namespace worker {
const Family& opt_family();
}

namespace worker::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

using Named = std::map<std::string, at::Tensor>;

Named read_all(const std::filesystem::path& file) {
  const fsdp::SafetensorsReader reader(file);
  Named out;
  for (const auto& [name, entry] : reader.entries()) out[name] = reader.tensor(name).clone();
  return out;
}

constexpr const char* kSizes =
    R"("hidden_size":16,"ffn_dim":24,"num_hidden_layers":2,"num_attention_heads":2,"max_position_embeddings":48)";

/// Registers the family as docs/new-recipe.md says.
class NewFamily : public ::testing::Test {
 protected:
  RunConfig run(const std::string& model, const std::string& train) const {
    return parse_run_config(R"({"format":1,"name":"opt","model":{"family":"opt",)" + model +
                            R"(},"data":{"source":"fixture","sequence_length":32,"cache_folder":")" +
                            (folder_ / "cache").native() +
                            R"("},"train":{"batch_size":8,"warmup_steps":0,"validation_every_steps":0)" + train +
                            R"(},"checkpoint":{"every_steps":0}})");
  }
  std::string pretrained(const char* export_folder) const {
    return R"("pretrained":")" + (folder_ / export_folder).native() + "\"";
  }

  /// The losses of a training whose export and checkpoints are named so.
  std::vector<double> losses(RunConfig config, const std::string& name, int ranks = 2) const {
    config.exports.folder = (folder_ / name).native();
    config.checkpoint.folder = (folder_ / ("checkpoints-" + name)).native();
    std::vector<Listener> listeners(static_cast<std::size_t>(ranks));
    train(config, listeners);
    std::vector<double> out;
    for (const auto& step : listeners[0].steps) out.push_back(value_of(step.values, "loss").value_or(-1));
    return out;
  }
  Named exported(const std::string& name) const { return read_all(folder_ / name / "model.safetensors"); }

  const TemporaryFolder folder_;
  const ScratchFamily family_{opt_family()};
  const spec::ScratchRecipes row_{[](std::vector<spec::Recipe>& recipes) {
    std::ranges::find(recipes, "causal_lm", &spec::Recipe::kind)->families.push_back(&spec::opt());
  }};
};

TEST_F(NewFamily, LearnsOnTwoRanksAsOnOne) {
  const RunConfig config = run(kSizes, R"(,"steps":30,"learning_rate":0.01)");
  const auto curve = losses(config, "two"), alone = losses(config, "one", 1);
  ASSERT_EQ(curve.size(), 30U);
  EXPECT_LT(curve.back(), curve.front() - 0.5);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(curve[i], alone[i], 1e-4) << "step " << i + 1;
}

TEST_F(NewFamily, ItsExportIsReadBack) {
  losses(run(kSizes, R"(,"steps":1,"learning_rate":0.01)"), "first");
  const Named first = exported("first");
  EXPECT_EQ(first.at("model.decoder.embed_positions.weight").sizes(), (at::IntArrayRef{48 + 2, 16}));
  const auto config = fsdp::Json::parse(read_file(folder_ / "first" / kModelConfigFile));
  EXPECT_EQ(config.at("architectures").as_array().front().as_string(), "OPTForCausalLM");
  // A rate so small that no weight moves.
  losses(run(pretrained("first"), R"(,"steps":1,"learning_rate":1e-12)"), "second");
  const Named second = exported("second");
  ASSERT_EQ(second.size(), first.size());
  for (const auto& [name, value] : first) EXPECT_TRUE(at::allclose(second.at(name), value, 0, 1e-8)) << name;
  // Files of transformers' OPTModel lack the prefix, and may hold the head's weight, which is the embedding's.
  std::vector<std::pair<std::string, at::Tensor>> base{{"lm_head.weight", at::zeros({257, 16})}};
  for (const auto& [name, value] : first) base.emplace_back(name.substr(std::string("model.").size()), value);
  std::filesystem::create_directories(folder_ / "base");
  std::filesystem::copy_file(folder_ / "first" / kModelConfigFile, folder_ / "base" / kModelConfigFile);
  fsdp::write_safetensors(folder_ / "base/model.safetensors", base);
  losses(run(pretrained("base"), R"(,"steps":1,"learning_rate":1e-12)"), "third");
  for (const auto& [name, value] : exported("third")) EXPECT_TRUE(at::allclose(first.at(name), value, 0, 1e-8)) << name;
}

/// The family under another name, with other layers for adapters.
struct Variant {
  explicit Variant(std::string_view lora_layers) : family(opt_family()) {
    family.name = "variant";
    family.lora_layers = lora_layers;
  }
  Family family;
  const spec::Table table{"variant", spec::opt().keys, spec::opt().derive, spec::opt().check};
  const ScratchFamily registered{family};
  const spec::ScratchRecipes row{
      [this](std::vector<spec::Recipe>& recipes) { recipes.front().families.push_back(&table); }};
};

TEST_F(NewFamily, GetsAdaptersOnTheLayersThatItNames) {
  losses(run(kSizes, R"(,"steps":1)"), "base");
  const Variant variant("fc1 out_proj");
  RunConfig config = run(pretrained("base"), R"(,"steps":2,"learning_rate":0.01,"lora_rank":2)");
  config.family = "variant";
  losses(config, "merged");
  const Named before = exported("base"), after = exported("merged");
  ASSERT_EQ(after.size(), before.size());
  for (const auto& [name, value] : after) {
    const bool has_adapter = name.ends_with("fc1.weight") || name.ends_with("out_proj.weight");
    EXPECT_NE(at::equal(value, before.at(name)), has_adapter) << name;
  }
}

TEST_F(NewFamily, WithoutUsualLayersARunMustNameThem) {
  losses(run(kSizes, R"(,"steps":1)"), "base");
  const Variant variant("");
  RunConfig config = run(pretrained("base"), R"(,"steps":1,"lora_rank":2)");
  config.family = "variant";
  std::vector<Listener> listeners(1);
  std::string error = "(nothing was thrown)";
  listeners[0].on_failure = [&](const std::string& text) { error = text; };
  train(config, listeners);
  EXPECT_THAT(error,
              AllOf(HasSubstr("train.lora_layers is missing: the family variant"), HasSubstr("name linear layers")));
}

TEST_F(NewFamily, WritesTextFromAnExportAndFromACheckpoint) {
  RunConfig config = run(kSizes, R"(,"steps":20,"learning_rate":0.01)");
  losses(config, "model");
  const auto written = [&](const std::string& folder) {
    const infer::Options options{.command = infer::Command::kGenerate, .model = folder_ / folder, .device = "cpu"};
    const infer::Source source = infer::open_source(options);
    EXPECT_EQ(source.family->name, "opt");
    EXPECT_EQ(source.whole("vocab_size"), 257);
    return infer::open_generator(source, options)->generate({{'t', 'h', 'e'}, {'a'}}, {.max_new_tokens = 12}, {});
  };
  const auto of_export = written("model");
  EXPECT_EQ(of_export, written("checkpoints-model"));
  // With a cache or without one, the tokens are the same.
  const auto model =
      opt_family().make_causal(opt_family().read(fsdp::Json::parse(read_file(folder_ / "model" / kModelConfigFile))));
  const at::NoGradGuard no_grad;
  const Named values = exported("model");
  for (auto& item : model->named_parameters()) item.value().copy_(values.at(item.key()));
  TokenIds ids{'t', 'h', 'e'}, wanted;
  for (std::size_t i = 0; i < of_export.front().size(); ++i) {
    wanted.push_back(model->forward(at::tensor(ids).unsqueeze(0)).select(1, -1).argmax().item<std::int64_t>());
    ids.push_back(wanted.back());
  }
  EXPECT_EQ(of_export.front(), wanted);
  EXPECT_FALSE(wanted.empty());
}

TEST(NewFamilyRegistration, WithoutItTheFamilyIsRefused) {
  EXPECT_THROW(family("opt"), std::invalid_argument);
  EXPECT_THROW(parse_run_config(R"({"format":1,"name":"opt","model":{"family":"opt"},"data":{"source":"fixture"}})"),
               base::UsageError);
}

}  // namespace
}  // namespace worker::testing
