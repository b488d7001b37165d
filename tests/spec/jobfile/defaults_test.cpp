#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "proto/json/proto_json.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/spec.h"
#include "tests/places.h"
#include "tests/recipe_values.h"

namespace jobfile {
namespace {

using muster::v1::JobSpec;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::SizeIs;

JobSpec recipe_job() {
  JobSpec spec;
  spec.set_name("job");
  spec.mutable_recipe();
  return spec;
}

JobSpec command_job() {
  JobSpec spec;
  spec.set_name("job");
  spec.mutable_command()->add_argv("true");
  return spec;
}

JobSpec filled(JobSpec spec) {
  fill_defaults(spec);
  return spec;
}

std::vector<std::string> keys_of(const std::vector<Problem>& problems) {
  std::vector<std::string> keys;
  for (const auto& problem : problems) keys.push_back(problem.field);
  return keys;
}

std::vector<std::string> wrong_keys(const JobSpec& spec) {
  return keys_of(validate(filled(spec), FileChecks::kSkip));
}

// Compares with a golden file. MUSTER_BLESS=1 rewrites the file.
void expect_golden(const std::string& name, const std::string& text) {
  const auto path = ::test::source_folder() + "/tests/golden/" + name;
  if (std::getenv("MUSTER_BLESS") != nullptr) std::ofstream(path) << text;
  std::ifstream in(path);
  std::stringstream golden;
  golden << in.rdbuf();
  EXPECT_EQ(golden.str(), text) << "review the change, then ./dev bless";
}

TEST(Golden, TheDefaultsOfARecipeAndOfACommand) {
  expect_golden("default_spec.json", proto::to_json(filled(recipe_job())).dump(2) + "\n" +
                                         proto::to_json(filled(command_job())).dump(2) + "\n");
}

TEST(Defaults, AreValidAndDoNotChangeWhenFilledTwice) {
  for (const auto& spec : {filled(recipe_job()), filled(command_job())}) {
    EXPECT_THAT(validate(spec, FileChecks::kLook), IsEmpty());
    EXPECT_EQ(proto::to_json(filled(spec)).dump(), proto::to_json(spec).dump());
  }
}

TEST(Defaults, GivenZerosAreKept) {
  auto spec = recipe_job();
  for (const auto* key : {"train.validation_every_steps", "train.warmup_steps", "train.seed"}) {
    test::put(spec, key, 0);
  }
  for (const auto* key : {"train.clip_norm", "train.weight_decay", "train.min_learning_rate"}) {
    test::put(spec, key, 0.0);
  }
  test::put(spec, "data.validation_fraction", 0.0);
  test::put(spec, "fsdp.prefetch", false);
  spec.mutable_checkpoint()->set_every_steps(0);
  spec.mutable_requeue()->set_max_failed(0);
  spec.mutable_resources()->set_stop_grace_ms(0);
  fill_defaults(spec);
  EXPECT_EQ(test::real(spec, "train.clip_norm"), 0);
  EXPECT_EQ(test::whole(spec, "train.validation_every_steps"), 0);
  EXPECT_EQ(test::whole(spec, "train.warmup_steps"), 0);
  EXPECT_EQ(test::real(spec, "train.weight_decay"), 0);
  EXPECT_EQ(test::real(spec, "train.min_learning_rate"), 0);
  EXPECT_EQ(test::whole(spec, "train.seed"), 0);
  EXPECT_EQ(test::real(spec, "data.validation_fraction"), 0);
  EXPECT_FALSE(test::flag(spec, "fsdp.prefetch"));
  EXPECT_TRUE(test::flag(spec, "fsdp.reshard_after_forward"));
  EXPECT_EQ(spec.checkpoint().every_steps(), 0U);
  EXPECT_EQ(spec.requeue().max_failed(), 0U);
  EXPECT_EQ(spec.requeue().max_rank_silent(), 5U);
  EXPECT_EQ(spec.resources().stop_grace_ms(), 0);
}

TEST(Defaults, TheMicroBatchFitsTheBatchThatWasGiven) {
  const auto micro = [](std::uint32_t ranks, std::uint32_t batch) {
    auto spec = recipe_job();
    spec.mutable_resources()->set_ranks_per_node(ranks);
    test::put(spec, "train.batch_size", batch);
    return test::whole(filled(spec), "train.micro_batch_size");
  };
  EXPECT_EQ(micro(2, 16), 8U);
  EXPECT_EQ(micro(2, 8), 4U);
  EXPECT_EQ(micro(2, 20), 5U);
  EXPECT_EQ(micro(3, 33), 1U);
  EXPECT_EQ(micro(1, 64), 8U);
}

TEST(Defaults, OthersFollowFromWhatWasGiven) {
  auto spec = recipe_job();
  spec.mutable_resources()->set_nodes(2);
  spec.mutable_resources()->set_ranks_per_node(3);
  test::put(spec, "train.steps", 50);
  test::put(spec, "train.learning_rate", 1e-2);
  test::put(spec, "data.sequence_length", 4096);
  spec.mutable_requeue()->set_backoff_initial_ms(600'000);
  spec.mutable_liveness()->set_silent_after_ms(60'000);
  fill_defaults(spec);
  EXPECT_EQ(test::whole(spec, "train.batch_size"), 48);
  EXPECT_EQ(test::whole(spec, "train.warmup_steps"), 5);
  EXPECT_DOUBLE_EQ(test::real(spec, "train.min_learning_rate"), 1e-3);
  EXPECT_EQ(test::whole(spec, "model.max_position_embeddings"), 4096);
  EXPECT_EQ(spec.requeue().backoff_max_ms(), 600'000);
  EXPECT_EQ(spec.liveness().silent_after_vouched_ms(), 60'000);
  EXPECT_THAT(validate(spec, FileChecks::kLook), IsEmpty());
}

TEST(Fields, EveryConstantDefaultIsOfItsKindAndInItsRange) {
  std::set<std::string_view> keys;
  for (const auto& field : job_keys()) {
    EXPECT_TRUE(keys.insert(field.name).second) << field.name << " twice";
    EXPECT_FALSE(field.meaning.empty()) << field.name;
    if (field.standard.empty()) continue;
    const auto value = parse(field, field.standard);
    ASSERT_TRUE(value) << field.name;
    EXPECT_TRUE(allowed(field, *value)) << field.name;
  }
}

// In older versions field 4 was the message `Train`.
TEST(Validate, ARecipeOfAnotherVersionIsRefusedRatherThanTrainedWithDefaults) {
  auto spec = filled(recipe_job());
  auto& recipe = *spec.mutable_recipe();
  recipe.GetReflection()->MutableUnknownFields(&recipe)->AddLengthDelimited(4, "\x08\x03");
  const auto problems = validate(spec, FileChecks::kSkip);
  ASSERT_EQ(problems.size(), 1U);
  EXPECT_EQ(to_string(problems[0]),
            "this recipe was written by another version of muster, in a form that this controller does not know; "
            "submit it with the "
            "muster of this controller's version");
}

TEST(Validate, AValueOfARecipeHasARowAndItsKind) {
  auto spec = filled(recipe_job());
  test::put(spec, "train.stepps", 3);
  test::put(spec, "train.clip_norm", std::string("many"));
  test::put(spec, "train.beta1", 0);  // a whole number is a valid real number
  EXPECT_THAT(keys_of(validate(spec, FileChecks::kSkip)), ElementsAre("train.clip_norm", "train.stepps"));
}

TEST(Validate, ASpecFromAnywhereIsHeldToTheSameRanges) {
  auto spec = recipe_job();
  spec.set_name("no spaces please");
  test::put(spec, "train.learning_rate", -1.0);
  test::put(spec, "train.clip_norm", std::numeric_limits<double>::quiet_NaN());
  test::put(spec, "train.schedule", "exponential");
  test::put(spec, "train.min_learning_rate", -2.0);
  spec.mutable_requeue()->set_backoff_initial_ms(-5);
  spec.mutable_resources()->set_nodes(4'000'000'000U);
  spec.mutable_resources()->set_ranks_per_node(4'000'000'000U);
  test::put(spec, "train.seed", std::numeric_limits<std::uint64_t>::max());
  const auto keys = wrong_keys(spec);
  for (const char* key : {"name", "train.learning_rate", "train.clip_norm", "train.schedule", "requeue.backoff_initial",
                          "resources.nodes", "resources.ranks_per_node", "train.seed"}) {
    EXPECT_THAT(keys, Contains(key));
  }
}

TEST(Validate, ProblemsAreBounded) {
  auto spec = command_job();
  for (int i = 0; i < 100; ++i) (*spec.mutable_env())[std::to_string(i)] = "x";
  EXPECT_THAT(validate(filled(spec), FileChecks::kSkip), SizeIs(kMostProblems));
}

TEST(Validate, AJobNeedsANameAndAProgram) {
  EXPECT_THAT(wrong_keys(JobSpec()), ElementsAre("name", ""));
  auto empty = command_job();
  empty.mutable_command()->clear_argv();
  EXPECT_THAT(wrong_keys(empty), ElementsAre("command"));
}

TEST(Validate, TextsWithNulNeverReachAProcess) {
  auto spec = command_job();
  spec.mutable_command()->add_argv(std::string("a\0b", 3));
  (*spec.mutable_env())["A"] = std::string("a\0b", 3);
  EXPECT_THAT(wrong_keys(spec), ElementsAre("command", "env.A"));
}

TEST(Validate, FoldersAreLookedForOnlyWhenAsked) {
  auto spec = recipe_job();
  test::put(spec, "data.source", "folder");
  test::put(spec, "data.path", "/no/such/folder");
  spec.set_working_folder("/no/such/folder");
  spec.mutable_checkpoint()->set_folder("/proc/self/exe");
  EXPECT_THAT(wrong_keys(spec), IsEmpty());
  EXPECT_THAT(keys_of(validate(filled(spec), FileChecks::kLook)),
              ElementsAre("data.path", "working_folder", "checkpoint.folder"));
  spec.set_working_folder("relative");
  EXPECT_THAT(wrong_keys(spec), ElementsAre("working_folder"));
}

}  // namespace
}  // namespace jobfile
