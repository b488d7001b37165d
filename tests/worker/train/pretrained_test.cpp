// Goal: training starts from the weights of a Hugging Face folder, and a folder that does not fit is told with its
// remedy. Method: folders that are written here. A run from a folder is compared with a run that draws the same
// weights.
#include "worker/train/start_weights.h"

#include <gmock/gmock.h>

#include <fstream>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/usage_error.h"
#include "fsdp/engine/initialize.h"
#include "fsdp/files/export.h"
#include "fsdp/files/safetensors.h"
#include "fsdp/text/json.h"
#include "spec/tables/llama_keys.h"
#include "tests/worker/llama_folder.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/train/prepare_source.h"
#include "worker/train/step_measures.h"

namespace worker::testing {
namespace {

using fsdp::Json;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

/// The model of a run that draws its weights.
spec::Llama llama_of(const RunConfig& config) {
  auto model = spec::bind<spec::Llama>(spec::llama(), config.values);
  if (model.vocab_size == 0) model.vocab_size = 257;
  return model;
}

/// The run, but with the weights of that folder and nothing else that describes the model.
RunConfig starting_from(RunConfig config, const std::filesystem::path& folder) {
  spec::Values values;
  for (const auto& [name, value] : config.values) {
    if (!name.starts_with("model.") || name == "model.family") values.set(name, value);
  }
  values.set("model.pretrained", folder.native());
  config.values = std::move(values);
  return config;
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
    drawing.values.set("model.initializer_range", 0.1);
    write_folder(folder / "model", config_json(llama_of(drawing)), drawn(llama_of(drawing), 0));
    const RunConfig loading = starting_from(run_of(folder, R"(,"steps":3)", "", "loading"), folder / "model");
    const RunConfig other = run_of(folder, R"(,"steps":3)", "", "other");
    const auto want = losses(drawing, ranks);
    EXPECT_EQ(losses(loading, ranks), want);
    EXPECT_NE(losses(other, ranks), want);
  }
}

TEST(Pretrained, ARunThatGoesOnNeedsNoFolder) {
  const TemporaryFolder folder;
  RunConfig config = run_of(folder, R"(,"steps":2)");
  write_folder(folder / "model", config_json(llama_of(config)), drawn(llama_of(config), 7));
  config = starting_from(config, folder / "model");
  EXPECT_EQ(losses(config, 2).size(), 2u);
  std::filesystem::remove_all(folder / "model");
  config.train.steps = 3;
  EXPECT_EQ(losses(config, 2).size(), 1u);
}

/// The error of each rank in a run that must be refused before its first step.
std::vector<std::string> refusal_of(const RunConfig& config, std::size_t ranks) {
  std::vector<Listener> listeners(ranks);
  std::vector<std::string> errors(ranks);
  for (std::size_t rank = 0; rank < ranks; ++rank)
    listeners[rank].on_failure = [&errors, rank](const std::string& text) { errors[rank] = text; };
  train(config, listeners);
  for (const auto& listener : listeners) EXPECT_TRUE(listener.steps.empty()) << "before the first step";
  return errors;
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
  second = starting_from(second, first.exports.folder);
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

TEST(Exported, TheFolderThatTheTrainingStartsFromIsNotReplaced) {
  const TemporaryFolder folder;
  const RunConfig drawing = run_of(folder, R"(,"steps":1)", "", "drawing");
  write_folder(folder / "model", config_json(llama_of(drawing)), drawn(llama_of(drawing), 0));
  write_file(folder / "model" / fsdp::kExportMark, "{}");  // it may be an earlier export
  RunConfig config = starting_from(run_of(folder, R"(,"steps":2)", "", "loading"), folder / "model");
  config.exports.folder = (folder / "model").native() + "/";
  EXPECT_THAT(refusal_of(config, 1).front(),
              HasSubstr("this is model.pretrained, which an export would replace; choose another folder"));
}

TEST(Exported, AFolderThatCannotBeMadeIsRefusedBeforeTheFirstStep) {
  const TemporaryFolder folder;
  write_file(folder / "notes.txt", "mine");
  RunConfig config = run_of(folder, R"(,"steps":2)");
  config.exports.folder = (folder / "notes.txt/out").native();
  EXPECT_THAT(refusal_of(config, 1).front(),
              AllOf(HasSubstr("train.export_folder = "), HasSubstr("notes.txt is no folder; choose another")));
}

TEST(Exported, AFolderThatHoldsOtherFilesIsRefusedBeforeTheFirstStep) {
  const TemporaryFolder folder;
  RunConfig config = run_of(folder, R"(,"steps":2)");
  config.exports.folder = (folder / "out").native();
  write_file(folder / "out/notes.txt", "mine");
  EXPECT_THAT(refusal_of(config, 1).front(),
              AllOf(HasSubstr("train.export_folder = "), HasSubstr("choose another folder, or empty this one")));
}

/// The tensors of a file, read whole.
std::map<std::string, at::Tensor> tensors_of(const std::filesystem::path& file) {
  const fsdp::SafetensorsReader reader(file);
  std::map<std::string, at::Tensor> out;
  for (const auto& [name, entry] : reader.entries()) out[name] = reader.tensor(name).clone();
  return out;
}

TEST(FullState, HoldsTheWeightsOfTheExportInOneFile) {
  for (const char* dtype : {"trained", "bf16"}) {
    const TemporaryFolder folder;
    RunConfig config = run_of(folder, std::string(R"(,"steps":2,"average_decay":0.5,"export_dtype":")") + dtype + "\"");
    config.exports.folder = (folder / "out").native();
    config.exports.full_state_file = (folder / "new/state.safetensors").native();
    losses(config, 2);
    const auto want = tensors_of(folder / "out/model.safetensors"), got = tensors_of(config.exports.full_state_file);
    ASSERT_EQ(got.size(), want.size());
    for (const auto& [name, value] : want) {
      ASSERT_TRUE(got.contains(name)) << name;
      EXPECT_EQ(got.at(name).scalar_type(), value.scalar_type()) << name;
      EXPECT_TRUE(got.at(name).equal(value)) << name;
    }
    std::vector<std::string> files;
    for (const auto& entry : std::filesystem::directory_iterator(folder / "new"))
      files.push_back(entry.path().filename());
    EXPECT_EQ(files, std::vector<std::string>{"state.safetensors"}) << "nothing else stays";
  }
}

TEST(FullState, AnAttemptThatFindsAllStepsDoneReplacesIt) {
  const TemporaryFolder folder;
  RunConfig config = run_of(folder, R"(,"steps":2)");
  losses(config, 1);
  config.exports.full_state_file = (folder / "state.safetensors").native();
  losses(config, 2);
  const auto first = std::filesystem::last_write_time(folder / "state.safetensors");
  write_file(folder / ".tmp-state.safetensors", "of an attempt that was killed");
  losses(config, 2);
  EXPECT_FALSE(tensors_of(folder / "state.safetensors").empty());
  EXPECT_NE(std::filesystem::last_write_time(folder / "state.safetensors"), first);
  EXPECT_FALSE(std::filesystem::exists(folder / ".tmp-state.safetensors"));
}

TEST(FullState, APlaceWhereNoFileCanBeIsRefusedBeforeTheFirstStep) {
  const TemporaryFolder folder;
  write_file(folder / "notes.txt", "mine");
  std::filesystem::create_directory(folder / "there");
  const std::pair<const char*, const char*> wrong[] = {
      {"there", "this is a folder; name a file, such as model.safetensors in it"},
      {"new/", "this is a folder; name a file"},
      {"notes.txt", "there is a file that no earlier run has written there; choose another path, or remove it"},
      {"notes.txt/state.safetensors", "notes.txt is no folder; choose another path"},
      {"out/state.safetensors", "an export replaces the whole folder of train.export_folder; name a file outside"}};
  for (const auto& [path, words] : wrong) {
    RunConfig config = run_of(folder, R"(,"steps":2)");
    config.exports.folder = (folder / "out").native();
    config.exports.full_state_file = (folder / path).native();
    const auto errors = refusal_of(config, 2);
    EXPECT_THAT(errors[0], AllOf(HasSubstr("train.full_state_file = \""), HasSubstr(words))) << path;
    EXPECT_EQ(errors[1], errors[0]);
  }
}

TEST(FullState, AFailureOfRankZeroIsToldByAllRanks) {
  const TemporaryFolder folder;
  RunConfig config = run_of(folder, R"(,"steps":1)");
  config.exports.full_state_file = (folder / "state/full.safetensors").native();
  std::vector<Listener> listeners(2);
  std::vector<std::string> errors(2);
  for (std::size_t rank = 0; rank < 2; ++rank)
    listeners[rank].on_failure = [&errors, rank](const std::string& text) { errors[rank] = text; };
  listeners[0].on_step = [&] {
    std::filesystem::remove_all(folder / "state");
    write_file(folder / "state", "in the way");
  };
  train(config, listeners);
  EXPECT_THAT(errors[0], AllOf(HasSubstr("train.full_state_file: "), HasSubstr((folder / "state").native())));
  EXPECT_EQ(errors[1], errors[0]);
}

/// A folder that a test makes unfit for a small model, and the error about it.
class BadFolder : public ::testing::Test {
 protected:
  BadFolder()
      : drawing_(run_of(folder_, "")), json_(config_json(llama_of(drawing_))), tensors_(drawn(llama_of(drawing_), 1)) {}

  std::string error() {
    write_folder(folder_ / "model", json_, tensors_);
    return error_of_loading();
  }

  std::string error_of_loading() {
    RunConfig config = starting_from(drawing_, folder_ / "model");
    for (const auto& [name, value] : written_) config.values.set(name, value);
    try {
      const ChosenModel chosen = choose_model(config, 257);
      const auto model = [&] {
        const fsdp::MetaDeviceGuard guard;
        return chosen.family->make_causal(chosen.values);
      }();
      fsdp::DeviceMesh alone(nullptr, 0, 1, {});
      fsdp::ShardedModel sharded(model, alone);
      sharded.fully_shard(model);
      start_weights(chosen, 0, sharded);
      return "no error";
    } catch (const base::UsageError& error) {
      return error.what();
    }
  }

  const TemporaryFolder folder_;
  const RunConfig drawing_;
  spec::Values written_;  // rows of [model] in the job file
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

TEST_F(BadFolder, GivesWhatIsNotWrittenAndContradictsWhatIs) {
  written_.set("model.hidden_size", std::int64_t{32});
  written_.set("model.attention_dropout", 0.1);
  EXPECT_EQ(error(), "no error") << "no weight depends on a dropout";
  written_.set("model.hidden_size", std::int64_t{64});
  written_.set("model.rms_norm_eps", 1e-3);
  EXPECT_THAT(error(), HasSubstr("config.json there has model.hidden_size = 32, not 64, model.rms_norm_eps = 1e-05, "
                                 "not 0.001; leave the keys of [model] that config.json gives out of the job file"));
}

TEST_F(BadFolder, WithSwitchesIsReadWithThem) {
  json_["attention_bias"] = true;
  EXPECT_THAT(error(), HasSubstr("no tensor for model.layers.0.self_attn.k_proj.bias"));
}

TEST_F(BadFolder, WithASmallerVocabularyThanTheDataIsRefused) {
  json_["vocab_size"] = 200;
  EXPECT_THAT(error(), HasSubstr("model.vocab_size = 200: the data have 257 tokens; prepare the data with the model's "
                                 "own tokenizer"));
}

TEST_F(BadFolder, WhoseRowsContradictEachOtherNamesThem) {
  json_["num_key_value_heads"] = 3;
  EXPECT_THAT(error(), HasSubstr("model.num_key_value_heads: want a divisor of num_attention_heads"));
  json_["num_key_value_heads"] = 2;
  json_["max_position_embeddings"] = 16;
  EXPECT_THAT(error(), HasSubstr("data.sequence_length: want at most model.max_position_embeddings = 16"));
}

TEST_F(BadFolder, WithWhatThisLlamaLacksIsRefused) {
  json_["hidden_act"] = "gelu";
  EXPECT_THAT(error(), HasSubstr("has hidden_act = \"gelu\", and this model has \"silu\" only"));
  json_["hidden_act"] = "silu";
  json_["rope_scaling"]["rope_type"] = "yarn";
  EXPECT_THAT(error(),
              HasSubstr("rope_scaling is of type \"yarn\", and this Llama has default, linear and llama3 only"));
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
  EXPECT_THAT(error(), HasSubstr("no tensor for " + name));
}

TEST_F(BadFolder, WithManyOtherTensorsNamesFiftyOfThem) {
  const auto tensor = [](int number) { return "other." + std::to_string(number); };
  for (int number = 10; number < 62; ++number) tensors_.emplace_back(tensor(number), at::zeros({1}));
  const std::string said = error();
  for (int number = 10; number < 60; ++number) EXPECT_THAT(said, HasSubstr("for tensor " + tensor(number)));
  EXPECT_THAT(said, AllOf(Not(HasSubstr(tensor(60))), HasSubstr("; and 2 more; give a model of the same")));
}

TEST_F(BadFolder, WithFilesThatAreTooLargeIsRefused) {
  EXPECT_EQ(error(), "no error");
  for (const char* name : {"config.json", "generation_config.json"}) {
    const auto file = folder_ / "model" / name;
    const std::string before = std::filesystem::exists(file) ? read_file(file) : "{}";
    write_file(file, before + std::string(1 << 20, ' '));
    EXPECT_THAT(error_of_loading(),
                AllOf(HasSubstr("model.pretrained = \"" + (folder_ / "model").native() + "\": " + file.native() + ": "),
                      HasSubstr(" bytes, more than the 1048576 that such a file may have")));
    write_file(file, before);
  }
}

TEST(ModelTokenizer, OfAFileThatIsTooLargeIsRefused) {
  const TemporaryFolder folder;
  RunConfig config = run_of(folder, R"(,"steps":1)");
  for (const auto& [name, most] : {std::pair("tokenizer.json", 256U << 20), std::pair("tokenizer.model", 64U << 20)}) {
    const auto file = folder / "words" / name;
    write_file(file, "");
    std::filesystem::resize_file(file, most + 1);
    config.data_options.tokenizer = (folder / "words").native();
    try {
      tokenizer_of(config);
      ADD_FAILURE() << name << " has no limit";
    } catch (const base::UsageError& error) {
      EXPECT_THAT(error.what(), AllOf(HasSubstr("data.tokenizer = \"" + config.data_options.tokenizer + "\": " +
                                                file.native() + ": " + std::to_string(most + 1) + " bytes, more than"),
                                      HasSubstr(" that such a file may have")));
    }
    std::filesystem::remove(file);
  }
}

}  // namespace
}  // namespace worker::testing
