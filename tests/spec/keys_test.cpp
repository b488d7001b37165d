// Goal: a key of a training means the same wherever it is read.
// Method: each row goes, with its default and with another value, through a job file, the controller's run file and the
// worker's reader, and through the worker's reader alone. One row exists only in this test.
#include <gmock/gmock.h>

#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/usage_error.h"
#include "cli/cli_command.h"
#include "spec/jobfile/job_file.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/run_file.h"
#include "spec/recipes.h"
#include "spec/tables/checkpoint_keys.h"
#include "tests/places.h"
#include "worker/train/train_config.h"

namespace {

using nlohmann::ordered_json;
using spec::Key;
using spec::Kind;
using spec::Value;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

const char* const kJob = "name = \"job\"\nenvironment = \"clean\"\n";
const char* const kRun = R"({"format":1,"name":"job"})";

std::vector<Key> training_keys() {
  std::vector<Key> keys;
  for (const auto& key : jobfile::job_keys()) {
    if (jobfile::is_recipe_key(key) || key.name.starts_with("checkpoint.")) keys.push_back(key);
  }
  return keys;
}

/// True if the controller fills this key with a folder of its own.
bool is_a_folder_of_the_controllers(const Key& key) {
  return key.name == "checkpoint.folder" || key.name == "data.cache_folder";
}

jobfile::JobFile parsed(const std::string& toml) {
  return jobfile::compose(jobfile::JobSource::of_text(toml, "job.toml", "/"), {}, jobfile::FileChecks::kSkip);
}

/// The values of one rank that a person starts.
spec::Values alone(const std::string& json) {
  const auto run = worker::parse_run_config(json);
  const auto split = worker::split_batch(run.train, 1);
  auto values = run.values;
  values.set("train.batch_size", split.batch_size);
  values.set("train.micro_batch_size", split.micro_batch_size);
  return values;
}

/// The values of one rank that a controller starts.
spec::Values by_the_controller(const std::string& toml) {
  auto file = parsed(toml);
  EXPECT_THAT(file.problems, IsEmpty()) << toml;
  jobfile::fill_defaults(file.spec);
  return alone(jobfile::run_file(file.spec, "/checkpoints", "/cache").dump());
}

/// A valid value other than the default, as spelt in a job file and in JSON.
std::string other_value(const Key& key) {
  // Numbers that other keys limit.
  static const std::map<std::string_view, const char*> kFitting{{"model.relative_attention_max_distance", "64"},
                                                                {"model.image_size", "128"},
                                                                {"model.patch_size", "16"},
                                                                {"data.global_crops_size", "32"},
                                                                {"data.local_crops_size", "16"},
                                                                {"data.global_scale_high", "0.75"},
                                                                {"train.mask_share_high", "0.25"},
                                                                {"train.span_length", "2"},
                                                                {"train.clip_norm_type", "\"3\""},
                                                                {"train.class_weights", "\"balanced\""}};
  if (const auto found = kFitting.find(key.name); found != kFitting.end()) return found->second;
  if (key.name == "model.hidden_size") return "512";
  if (key.name == "model.vocab_size") return "300";
  if (key.name == "model.num_attention_heads" || key.name == "model.num_key_value_heads") return "2";
  if (key.name == "train.batch_size") return "16";
  if (key.name == "train.min_learning_rate") return "0.0001";
  if (key.name == "data.sequence_length") return "64";
  if (key.name == "model.max_position_embeddings") return "4096";
  if (key.name == "model.head_dim") return "32";
  if (key.name.starts_with("model.rope_") && key.name.ends_with("_factor")) return "2";
  if (key.name == "fsdp.shard_ranks") return "1";  // of one rank
  if (key.name == "checkpoint.best") return "\"validation/loss\"";
  switch (key.kind) {
    case Kind::kFlag:
      return key.standard == "true" ? "false" : "true";
    case Kind::kChoice: {
      const auto last = key.choices.substr(key.choices.rfind(' ') + 1);
      return "\"" + std::string(last) + "\"";
    }
    case Kind::kReal:
      return "0.0625";
    case Kind::kPath:
      return "\"/other\"";
    case Kind::kText:
      return "\"other\"";
    case Kind::kSize:
      return "2048";
    default:
      return key.low > 9 ? std::to_string(static_cast<std::int64_t>(key.low) + 1) : "9";
  }
}

TEST(EveryKey, HasOneDefaultWithAControllerAloneAndInTheGoldenSpec) {
  const auto with = by_the_controller(std::string(kJob) + "[train]\n"), without = alone(kRun);
  std::ifstream in(::test::source_folder() + "/tests/golden/default_spec.json");
  ordered_json golden;
  in >> golden;  // the spec of a recipe; the spec of a command follows it
  int compared = 0;
  for (const auto& key : training_keys()) {
    if (is_a_folder_of_the_controllers(key)) continue;
    SCOPED_TRACE(key.name);
    const auto* there = with.find(key.name);
    const auto* here = without.find(key.name);
    ASSERT_EQ(there == nullptr, here == nullptr);
    ++compared;
    const auto dot = key.name.find('.');
    const auto table = std::string(key.name.substr(0, dot)), leaf = std::string(key.name.substr(dot + 1));
    const auto& parent = table == "checkpoint" ? golden : golden.at("recipe");
    const auto json = key.name == "train.recipe"        ? golden.at("recipe").at("kind")
                      : parent.at(table).contains(leaf) ? parent.at(table).at(leaf)
                                                        : ordered_json();
    if (there == nullptr) {
      EXPECT_TRUE(json.is_null()) << json;
      continue;
    }
    EXPECT_EQ(spec::print(key, *there), spec::print(key, *here));
    const auto said = json.is_string()         ? json.get<std::string>()
                      : json.is_number_float() ? spec::print(key, json.get<double>())
                      : json.is_boolean()      ? spec::print(key, json.get<bool>())
                                               : spec::print(key, json.get<std::int64_t>());
    EXPECT_EQ(spec::print(key, *there), said);
  }
  EXPECT_GE(compared, 35);
}

using Spelt = std::map<std::string, std::string>;  // values as spelt in a job file and in JSON, by key

/// The kind of recipe and the family, other than the usual ones, that have the key.
Spelt home_of(std::string_view key) {
  for (const auto& recipe : spec::recipes()) {
    for (const auto* family : recipe.families) {
      if (spec::find_key(spec::tables_of(recipe.kind, family->name), key) == nullptr) continue;
      Spelt home;
      if (recipe.kind != spec::recipe_key().standard) {
        home["train.recipe"] = "\"" + std::string(recipe.kind) + "\"";
        home["data.prepared"] = "\"/data\"";
      }
      if (family != recipe.families.front()) home["model.family"] = "\"" + std::string(family->name) + "\"";
      return home;
    }
  }
  return {};  // a key of checkpoints, or one that chooses the recipe
}

/// The keys, with their values, without which another value of this key is refused.
Spelt companions_of(std::string_view key) {
  if (key == "data.path") return {{"data.source", "\"folder\""}};
  if (key == "data.packing" || key == "train.legal_moves") return {{"data.prepared", "\"/data\""}};
  if (key == "train.recipe") return {{"data.prepared", "\"/data\""}};
  if (key == "model.family")  // the last one is dino's
    return {{"train.recipe", "\"dino\""}, {"data.prepared", "\"/data\""}};
  if (key == "model.use_mask_token") return {{"train.ibot_weight", "0"}};
  if (key == "train.span_density" || key == "train.span_length") return {{"train.objective", "\"spans\""}};
  if (key == "model.rope_factor") return {{"model.rope_type", "\"linear\""}};
  if (key.starts_with("model.rope_low") || key.starts_with("model.rope_high") || key.starts_with("model.rope_original"))
    return {{"model.rope_type", "\"llama3\""}};
  if (key == "train.step_size" || key == "train.gamma") return {{"train.schedule", "\"step\""}};
  if (key == "train.final_weight_decay") return {{"train.weight_decay_schedule", "\"cosine\""}};
  if (key == "train.early_stop_least") return {{"train.early_stop", "3"}};
  if (key == "train.lora_rank") return {{"model.pretrained", "\"/model\""}};
  if (key.starts_with("train.lora_") || key == "train.export_merged" || key == "train.quantize_base")
    return {{"model.pretrained", "\"/model\""}, {"train.lora_rank", "4"}};
  if (key == "fsdp.reduce_precision" || key == "fsdp.fp32_norms" || key == "train.heads_precision" ||
      key == "fsdp.heads_reduce_precision")
    return {{"train.precision", "\"fp16\""}};
  if (key == "fsdp.activation_checkpointing_keeps" || key == "fsdp.activation_offload")
    return {{"fsdp.activation_checkpointing", "\"block\""}};
  if (key == "fsdp.wrap_min_parameters") return {{"fsdp.wrap", "\"size\""}};
  for (const char* of_groups : {"fsdp.shard_ranks", "fsdp.reshard_to_ranks"})
    if (key == of_groups) return {{"fsdp.strategy", "\"hybrid_shard\""}};
  for (const char* of_sgd : {"train.momentum", "train.dampening", "train.nesterov"})
    if (key == of_sgd) return {{"train.optimizer", "\"sgd\""}};
  return {};
}

/// The tables of these keys.
std::map<std::string, Spelt> by_table(const Spelt& keys) {
  std::map<std::string, Spelt> tables;
  for (const auto& [key, value] : keys) tables[key.substr(0, key.find('.'))][key.substr(key.find('.') + 1)] = value;
  return tables;
}

std::string as_toml(const Spelt& keys) {
  std::string toml = kJob;
  auto tables = by_table(keys);
  tables["train"];  // so that the job is one of a recipe
  for (const auto& [table, values] : tables) {
    toml += "[" + table + "]\n";
    for (const auto& [leaf, value] : values) toml.append(leaf).append(" = ").append(value).append("\n");
  }
  return toml;
}

/// A run file has its recipe at the top.
std::string as_json(Spelt keys) {
  std::string json = R"({"format":1,"name":"job")";
  if (const auto recipe = keys.extract("train.recipe")) json += ",\"recipe\":" + recipe.mapped();
  for (const auto& [table, values] : by_table(keys)) {
    json += ",\"" + table + "\":{";
    for (const auto& [leaf, value] : values) json += (json.back() == '{' ? "\"" : ",\"") + leaf + "\":" + value;
    json += "}";
  }
  return json + "}";
}

TEST(EveryKey, ArrivesWithAnotherValueFromAJobFileAndFromARunFile) {
  for (const auto& merged : training_keys()) {
    SCOPED_TRACE(merged.name);
    if (is_a_folder_of_the_controllers(merged)) continue;
    if (merged.name == "data.source") continue;  // its last choice forbids a path; data.path covers "folder"
    Spelt keys = home_of(merged.name);
    const auto spelt = [&](const char* key, std::string_view usual) {
      return keys.contains(key) ? keys[key].substr(1, keys[key].size() - 2) : std::string(usual);
    };
    const auto kind = spelt("train.recipe", spec::recipe_key().standard);
    const auto tables = spec::tables_of(kind, spelt("model.family", spec::first_family(kind)));
    // The row of its home: families may differ in what they take.
    const auto* own = spec::find_key(tables, merged.name);
    const Key& key = own != nullptr ? *own : merged;
    const auto value = other_value(key);
    keys.merge(companions_of(key.name));
    keys[std::string(key.name)] = value;
    const auto with = by_the_controller(as_toml(keys)), without = alone(as_json(keys));
    const auto* there = with.find(key.name);
    const auto* here = without.find(key.name);
    ASSERT_NE(there, nullptr);
    ASSERT_NE(here, nullptr);
    const auto wanted = value.front() == '"' ? value.substr(1, value.size() - 2) : value;
    const auto expected = spec::print(
        key, *spec::as_kind(key, *spec::parse(key.kind == Kind::kSize ? Key{.kind = Kind::kWhole} : key, wanted)));
    EXPECT_EQ(spec::print(key, *there), expected);
    EXPECT_EQ(spec::print(key, *here), expected);
  }
}

struct Scratch {
  double scratch_knob = -1;
};
constexpr Key kScratchKeys[] = {{.name = "train.scratch_knob",
                                 .kind = Kind::kReal,
                                 .standard = "0.25",
                                 .low = 0,
                                 .high = 1,
                                 .meaning = "Only a test has this knob.",
                                 .assign = spec::into<&Scratch::scratch_knob>}};

TEST(ANewKey, IsOneRowAndOneMember) {
  const spec::Table table{"scratch", kScratchKeys};
  const std::string job = kJob;
  EXPECT_THAT(parsed(job + "[train]\nscratch_knob = 0.5\n").problems, ElementsAre(HasSubstr("unknown key")));

  const spec::ScratchRecipes scratch([&](std::vector<spec::Recipe>& recipes) {
    for (auto& recipe : recipes) recipe.parts.push_back(&table);
  });
  EXPECT_THAT(cli::key_help(80), HasSubstr("scratch_knob = 0.25\n      Only a test has this knob."));
  EXPECT_THAT(jobfile::settable_keys(), Contains("train.scratch_knob"));
  EXPECT_THAT(parsed(job + "[train]\nscratch_knob = 0.5\n").problems, IsEmpty());
  EXPECT_THAT(parsed(job + "[train]\nscratch_knob = 2\n").problems,
              ElementsAre(HasSubstr("train.scratch_knob \"2\": want a number from 0 to 1")));
  EXPECT_THAT(parsed(job + "[train]\nscratch_nob = 0.5\n").problems,
              ElementsAre(HasSubstr("did you mean train.scratch_knob")));
  const auto knob = [&](const spec::Values& values) { return spec::bind<Scratch>(table, values).scratch_knob; };
  EXPECT_EQ(knob(by_the_controller(job + "[train]\n")), 0.25);
  EXPECT_EQ(knob(by_the_controller(job + "[train]\nscratch_knob = 0.5\n")), 0.5);
  EXPECT_EQ(knob(alone(kRun)), 0.25);
  try {
    alone(R"({"format":1,"name":"job","train":{"scratch_nob":0.5}})");
    ADD_FAILURE() << "an unknown key was taken";
  } catch (const base::UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean \"scratch_knob\""));
  }
}

enum class Colour { kRed, kBlue };
struct Painted {
  std::optional<Colour> colour;
};
constexpr Key kPaintedKeys[] = {{.name = "train.scratch_colour",
                                 .kind = Kind::kChoice,
                                 .standard = "bare",
                                 .choices = "bare red blue",
                                 .meaning = "Only a test has this colour.",
                                 .assign = spec::into<&Painted::colour>}};

TEST(ANewKey, MayChooseNothing) {
  const spec::Table table{"scratch", kPaintedKeys};
  const auto colour = [&](const char* word) {
    spec::Values values;
    if (*word != '\0') values.set("train.scratch_colour", std::string(word));
    return spec::bind<Painted>(table, values).colour;
  };
  EXPECT_EQ(colour("bare"), std::nullopt);
  EXPECT_EQ(colour("red"), Colour::kRed);
  EXPECT_EQ(colour("blue"), Colour::kBlue);
}

}  // namespace
