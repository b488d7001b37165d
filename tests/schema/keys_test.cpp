// Goal: a key of a training means the same wherever it is read.
// Method: each row goes, with its default and with another value, through a job file, the controller's run file and the
// worker's reader, and through the worker's reader alone. One row exists only in this test.
#include <gmock/gmock.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "cli/key_help.h"
#include "jobfile/job_file.h"
#include "jobfile/job_keys.h"
#include "jobfile/run_file.h"
#include "rank/errors.h"
#include "schema/recipes.h"
#include "schema/tables/checkpoints.h"
#include "train/config.h"

namespace {

using nlohmann::ordered_json;
using schema::Key;
using schema::Kind;
using schema::Value;
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

/// Whether the controller fills this key with a folder of its own.
bool is_a_folder_of_the_controllers(const Key& key) {
  return key.name == "checkpoint.folder" || key.name == "data.cache_folder";
}

jobfile::JobFile parsed(const std::string& toml) {
  return jobfile::compose(jobfile::JobSource::of_text(toml, "job.toml", "/"), {}, jobfile::FileChecks::kSkip);
}

/// The values of one rank that a person starts.
schema::Values alone(const std::string& json) {
  const auto run = worker::parse_run_config(json);
  const auto split = worker::split_batch(run.train, 1);
  auto values = run.values;
  values.set("train.batch_size", split.batch_size);
  values.set("train.micro_batch_size", split.micro_batch_size);
  return values;
}

/// The values of one rank that a controller starts.
schema::Values by_the_controller(const std::string& toml) {
  auto file = parsed(toml);
  EXPECT_THAT(file.problems, IsEmpty()) << toml;
  jobfile::fill_defaults(file.spec);
  return alone(jobfile::run_file(file.spec, "/checkpoints", "/cache").dump());
}

/// A valid value other than the default, as spelt in a job file and in JSON.
std::string other_value(const Key& key) {
  if (key.name == "model.hidden_size") return "512";
  if (key.name == "model.num_attention_heads" || key.name == "model.num_key_value_heads") return "2";
  if (key.name == "train.batch_size") return "16";
  if (key.name == "train.min_learning_rate") return "0.0001";
  if (key.name == "data.sequence_length") return "64";
  if (key.name == "model.max_position_embeddings") return "4096";
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
    case Kind::kSize:
      return "2048";
    default:
      return key.low > 9 ? std::to_string(static_cast<std::int64_t>(key.low) + 1) : "9";
  }
}

TEST(EveryKey, HasOneDefaultWithAControllerAloneAndInTheGoldenSpec) {
  const auto with = by_the_controller(std::string(kJob) + "[train]\n"), without = alone(kRun);
  std::ifstream in(MUSTER_GOLDEN_FOLDER "/default_spec.json");
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
    EXPECT_EQ(schema::print(key, *there), schema::print(key, *here));
    const auto said = json.is_string()         ? json.get<std::string>()
                      : json.is_number_float() ? schema::print(key, json.get<double>())
                      : json.is_boolean()      ? schema::print(key, json.get<bool>())
                                               : schema::print(key, json.get<std::int64_t>());
    EXPECT_EQ(schema::print(key, *there), said);
  }
  EXPECT_GE(compared, 35);
}

/// The key of the same table, and its value, without which another value of this key is refused.
std::pair<std::string, std::string> companion_of(std::string_view key) {
  if (key == "data.path") return {"source", "folder"};
  if (key == "train.step_size" || key == "train.gamma") return {"schedule", "step"};
  if (key == "train.final_weight_decay") return {"weight_decay_schedule", "cosine"};
  for (const char* of_groups : {"fsdp.shard_ranks", "fsdp.reshard_to_ranks"})
    if (key == of_groups) return {"strategy", "hybrid_shard"};
  for (const char* of_sgd : {"train.momentum", "train.dampening", "train.nesterov"})
    if (key == of_sgd) return {"optimizer", "sgd"};
  return {};
}

TEST(EveryKey, ArrivesWithAnotherValueFromAJobFileAndFromARunFile) {
  for (const auto& key : training_keys()) {
    SCOPED_TRACE(key.name);
    if (is_a_folder_of_the_controllers(key)) continue;
    const auto value = other_value(key);
    const auto dot = key.name.find('.');
    const auto table = std::string(key.name.substr(0, dot)), leaf = std::string(key.name.substr(dot + 1));
    const auto [companion, of_value] = companion_of(key.name);
    const auto toml = std::string(kJob) + (table == "checkpoint" ? "[train]\n" : "") + "[" + table + "]\n" + leaf +
                      " = " + value + "\n" + (companion.empty() ? "" : companion + " = \"" + of_value + "\"\n") +
                      (key.name == "data.source" ? "path = \"/text\"\n" : "");
    if (key.name == "data.source") continue;  // its last choice forbids a path; data.path covers "folder"
    const auto json = key.name == "train.recipe"
                          ? R"({"format":1,"name":"job","recipe":)" + value + "}"
                          : R"({"format":1,"name":"job",")" + table + R"(":{")" + leaf + "\":" + value +
                                (companion.empty() ? "" : ",\"" + companion + "\":\"" + of_value + "\"") + "}}";
    const auto with = by_the_controller(toml), without = alone(json);
    const auto* there = with.find(key.name);
    const auto* here = without.find(key.name);
    ASSERT_NE(there, nullptr);
    ASSERT_NE(here, nullptr);
    const auto wanted = value.front() == '"' ? value.substr(1, value.size() - 2) : value;
    const auto expected = schema::print(
        key, *schema::as_kind(key, *schema::parse(key.kind == Kind::kSize ? Key{.kind = Kind::kWhole} : key, wanted)));
    EXPECT_EQ(schema::print(key, *there), expected);
    EXPECT_EQ(schema::print(key, *here), expected);
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
                                 .assign = schema::into<&Scratch::scratch_knob>}};

TEST(ANewKey, IsOneRowAndOneMember) {
  const schema::Table table{"scratch", kScratchKeys};
  const std::string job = kJob;
  EXPECT_THAT(parsed(job + "[train]\nscratch_knob = 0.5\n").problems, ElementsAre(HasSubstr("unknown key")));

  const schema::ScratchTable scratch(table);
  EXPECT_THAT(cli::key_help(80), HasSubstr("scratch_knob = 0.25\n      Only a test has this knob."));
  EXPECT_THAT(jobfile::settable_keys(), Contains("train.scratch_knob"));
  EXPECT_THAT(parsed(job + "[train]\nscratch_knob = 0.5\n").problems, IsEmpty());
  EXPECT_THAT(parsed(job + "[train]\nscratch_knob = 2\n").problems,
              ElementsAre(HasSubstr("train.scratch_knob \"2\": want a number from 0 to 1")));
  EXPECT_THAT(parsed(job + "[train]\nscratch_nob = 0.5\n").problems,
              ElementsAre(HasSubstr("did you mean train.scratch_knob")));
  const auto knob = [&](const schema::Values& values) { return schema::bind<Scratch>(table, values).scratch_knob; };
  EXPECT_EQ(knob(by_the_controller(job + "[train]\n")), 0.25);
  EXPECT_EQ(knob(by_the_controller(job + "[train]\nscratch_knob = 0.5\n")), 0.5);
  EXPECT_EQ(knob(alone(kRun)), 0.25);
  try {
    alone(R"({"format":1,"name":"job","train":{"scratch_nob":0.5}})");
    ADD_FAILURE() << "an unknown key was taken";
  } catch (const worker::UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("did you mean \"scratch_knob\""));
  }
}

}  // namespace
