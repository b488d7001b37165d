// Goal: a plan that does not fit says by how much, and which settings fit.
// Method: plans of one run under several limits; each remedy is planned anew with its settings.
#include "worker/plan/fit.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "base/usage_error.h"
#include "fsdp/text/json.h"
#include "tests/worker/plan_settings.h"
#include "worker/plan/plan_command.h"

namespace worker::testing {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;
using ::testing::SizeIs;

constexpr const char* kTrain = R"(,"batch_size":16,"micro_batch_size":8)";

/// The run with a remedy's settings.
RankPlan plan_with(const TemporaryFolder& folder, const Remedy& remedy, int ranks, const std::string& checkpoint) {
  Settings with{.checkpoint = checkpoint};
  int world_size = ranks;
  bool has_micro_batch = false;
  for (const auto& [key, value] : remedy.set) {
    const auto dot = key.find('.');
    const auto table = key.substr(0, dot), leaf = key.substr(dot + 1);
    const bool is_word =
        value.find_first_not_of("0123456789") != std::string::npos && value != "true" && value != "false";
    const auto member = ",\"" + leaf + "\":" + (is_word ? "\"" + value + "\"" : value);
    if (key == "resources.nodes") world_size = ranks * std::stoi(value);
    if (table == "train") with.train += member;
    if (table == "fsdp") with.fsdp += member;
    if (table == "checkpoint") with.checkpoint = member;
    has_micro_batch |= key == "train.micro_batch_size";
  }
  with.train += has_micro_batch ? R"(,"batch_size":16)" : kTrain;
  return plan_rank(config_of(folder, with), place_of(world_size, ranks));
}

TEST(Fit, EveryRemedyIsOneThatFits) {
  const TemporaryFolder folder;
  const std::string checkpoint = R"(,"asynchronous":true)";
  const Settings settings{.train = kTrain, .checkpoint = checkpoint};
  const RunConfig config = config_of(folder, settings);
  const Limit all{std::int64_t{1} << 40, false, "a test"};
  const std::int64_t needed = bytes_against(plan_rank(config, place_of(2)), all);
  std::size_t most = 0;
  for (const double part : {0.99, 0.5, 0.25}) {
    const Limit limit{static_cast<std::int64_t>(static_cast<double>(needed) * part), false, "a test"};
    const auto found = remedies(config, place_of(2), limit);
    EXPECT_THAT(found, Not(IsEmpty())) << part;
    most = std::max(most, found.size());
    for (const Remedy& remedy : found) {
      SCOPED_TRACE(settings_text(remedy));
      const RankPlan plan = plan_with(folder, remedy, 2, checkpoint);
      EXPECT_EQ(bytes_against(plan, limit), remedy.bytes);
      EXPECT_LE(remedy.bytes, limit.bytes);
      EXPECT_FALSE(remedy.price.empty());
    }
  }
  EXPECT_GE(most, 4u) << "several single changes make room for one percent";
}

TEST(Fit, TheCheapestChangeComesFirst) {
  const TemporaryFolder folder;
  const RunConfig config = config_of(folder, {.train = kTrain, .fsdp = R"(,"strategy":"no_shard")"});
  const RankPlan plan = plan_rank(config, place_of(2));
  const auto found = remedies(config, place_of(2), {plan.tensor_bytes() - 1, false, "a test"});
  ASSERT_THAT(found, Not(IsEmpty()));
  EXPECT_EQ(settings_text(found[0]), "fsdp.strategy = full_shard");
  ASSERT_GE(found.size(), 2u);
  EXPECT_EQ(settings_text(found[1]), "train.micro_batch_size = 4") << "no further than needed";
}

TEST(Fit, ACombinationGoesNoFurtherThanNeeded) {
  const TemporaryFolder folder;
  const RunConfig config = config_of(folder, {.train = kTrain});
  const auto needed = [&](const Settings& with) {
    return plan_rank(config_of(folder, with), place_of(2)).tensor_bytes();
  };
  const std::string halves = R"(,"batch_size":16,"micro_batch_size":)";
  const std::string block = R"(,"activation_checkpointing":"block")";
  const std::int64_t both = needed({.train = halves + "2", .fsdp = block});
  for (const Settings& alone : {Settings{.train = halves + "1"}, {.train = kTrain, .fsdp = block}})
    ASSERT_GT(needed(alone), both) << "else the test shows nothing";
  const auto found = remedies(config, place_of(2), {both, false, "a test"});
  ASSERT_THAT(found, SizeIs(1));
  EXPECT_EQ(settings_text(found[0]), "train.micro_batch_size = 2, fsdp.activation_checkpointing = block");
  EXPECT_EQ(found[0].bytes, both);
}

TEST(Fit, SaysWhenNothingWouldDo) {
  const TemporaryFolder folder;
  const RunConfig config = config_of(folder, {.train = kTrain});
  const Limit limit{1 << 20, false, "a test"};
  const auto found = remedies(config, place_of(2), limit);
  EXPECT_THAT(found, IsEmpty());
  EXPECT_THAT(misfit_text(plan_rank(config, place_of(2)), limit, found),
              AllOf(HasSubstr("does not fit: it has 1.0 MiB (a test)"), HasSubstr("no change of strategy")));
}

TEST(Fit, AGpuDoesNotHoldTheCopyForCheckpoints) {
  const TemporaryFolder folder;
  const RunConfig config = config_of(folder, {.train = kTrain, .checkpoint = R"(,"asynchronous":true)"});
  const RankPlan plan = plan_rank(config, place_of(2));
  EXPECT_GT(plan.snapshot_bytes, 0);
  const std::int64_t limit = plan.tensor_bytes();
  EXPECT_TRUE(fits(plan, {limit, true, ""}));
  EXPECT_FALSE(fits(plan, {limit, false, ""}));
}

TEST(Fit, AFullStateIsGatheredAfterTheStepsOnTheHost) {
  const TemporaryFolder folder;
  RunConfig config = config_of(folder, {.train = kTrain});
  const RankPlan without = plan_rank(config, place_of(2));
  EXPECT_EQ(without.full_state_bytes, 0);
  config.exports.full_state_file = (folder / "full.safetensors").native();
  const RankPlan plan = plan_rank(config, place_of(2));
  EXPECT_EQ(plan.full_state_bytes, 4 * plan.parameter_count);
  const std::int64_t at_end = plan.tensor_bytes() - plan.activation_bytes + plan.full_state_bytes;
  EXPECT_EQ(bytes_against(plan, {0, false, ""}), std::max(plan.tensor_bytes(), at_end));
  EXPECT_EQ(bytes_against(plan, {0, true, ""}), plan.tensor_bytes()) << "a GPU does not hold it";
}

TEST(Fit, LeavingOutTheFullStateIsOfferedWhereItIsTheEndThatDoesNotFit) {
  const TemporaryFolder folder;
  RunConfig config = config_of(
      folder, {.train = R"(,"batch_size":2,"micro_batch_size":1)", .fsdp = R"(,"activation_checkpointing":"block")"});
  config.exports.full_state_file = (folder / "full.safetensors").native();
  const RankPlan plan = plan_rank(config, place_of(2));
  ASSERT_GT(plan.full_state_bytes, plan.activation_bytes) << "else the test shows nothing";
  const Limit limit{plan.tensor_bytes(), false, "a test"};
  const auto found = remedies(config, place_of(2), limit);
  ASSERT_THAT(found, Not(IsEmpty()));
  std::vector<std::string> settings;
  for (const Remedy& remedy : found) settings.push_back(settings_text(remedy));
  EXPECT_THAT(settings, ::testing::Contains("no train.full_state_file"));
  EXPECT_THAT(misfit_text(plan, limit, found),
              AllOf(HasSubstr("at the end the full state "), HasSubstr("train.export_folder writes the same weights")));
}

TEST(Fit, ASaveInPlaceMakesRoomForTheCopy) {
  const TemporaryFolder folder;
  const RunConfig config = config_of(folder, {.train = kTrain, .checkpoint = R"(,"asynchronous":true)"});
  const RankPlan plan = plan_rank(config, place_of(2));
  const auto found = remedies(config, place_of(2), {plan.tensor_bytes(), false, "a test"});
  ASSERT_THAT(found, Not(IsEmpty()));
  EXPECT_EQ(settings_text(found[0]), "checkpoint.asynchronous = false");
  EXPECT_EQ(found[0].bytes, plan.tensor_bytes());
}

TEST(Fit, AGpuDoesNotHoldWhatIsOffloaded) {
  const TemporaryFolder folder;
  const RunConfig config = config_of(folder, {.train = kTrain, .fsdp = R"(,"offload":"cpu")"});
  const RankPlan plan = plan_rank(config, place_of(2));
  EXPECT_EQ(plan.offloaded_bytes, plan.parameter_bytes + plan.gradient_bytes + plan.state_bytes);
  EXPECT_EQ(bytes_against(plan, {0, true, ""}), plan.pool_bytes + plan.activation_bytes);
  EXPECT_EQ(bytes_against(plan, {0, false, ""}), plan.tensor_bytes());
}

TEST(Fit, ActivationsOnTheHostHelpAGpuOnly) {
  const TemporaryFolder folder;
  const RunConfig config = config_of(
      folder, {.train = R"(,"batch_size":2,"micro_batch_size":1)", .fsdp = R"(,"activation_checkpointing":"block")"});
  const RankPlan plan = plan_rank(config, place_of(2));
  const auto offered = [&](bool of_gpu) {
    const auto found = remedies(config, place_of(2), {plan.tensor_bytes() - 1, of_gpu, "a test"});
    return std::ranges::any_of(
        found, [](const Remedy& remedy) { return settings_text(remedy) == "fsdp.activation_offload = true"; });
  };
  EXPECT_TRUE(offered(true));
  EXPECT_FALSE(offered(false));
}

TEST(Fit, OffloadHelpsAGpuOnly) {
  const TemporaryFolder folder;
  const RunConfig config = config_of(folder, {.train = R"(,"batch_size":2,"micro_batch_size":1)"});
  const RankPlan plan = plan_rank(config, place_of(2));
  const auto has_offload = [&](bool of_gpu) {
    const auto found = remedies(config, place_of(2), {plan.tensor_bytes() - 1, of_gpu, "a test"});
    return std::any_of(found.begin(), found.end(),
                       [](const Remedy& remedy) { return settings_text(remedy) == "fsdp.offload = cpu"; });
  };
  EXPECT_TRUE(has_offload(true));
  EXPECT_FALSE(has_offload(false));
}

TEST(Fit, TheCheckRefusesWhatDoesNotFitUnlessItIsOff) {
  const TemporaryFolder folder;
  RunConfig config = config_of(folder, {.train = kTrain});
  const std::int64_t needed = plan_rank(config, place_of(2)).tensor_bytes();
  check_memory(config, place_of(2), Limit{needed, false, "a test"});
  check_memory(config, place_of(2), std::nullopt);
  const Limit small{needed - 1, false, "a test"};
  EXPECT_THAT(message_of<base::UsageError>([&] { check_memory(config, place_of(2), small); }),
              AllOf(HasSubstr("by its plan a rank needs "), HasSubstr("what would fit: "),
                    HasSubstr("fsdp.check_memory = false runs it all the same")));
  check_memory(config, place_of(2), Limit{needed - 1, true, "a GPU, of whose activations the plan is not sure"});
  config.fsdp.check_memory = false;
  check_memory(config, place_of(2), small);
}

TEST(Fit, TheReportHasEveryNumberAndTheVerdict) {
  const TemporaryFolder folder;
  const RunConfig config = config_of(folder, {.train = kTrain});
  const RankPlan plan = plan_rank(config, place_of(2));
  const fsdp::Json alone = plan_report(config, place_of(2), Limit{});
  EXPECT_EQ(alone.at("tensor_bytes").as_int(), plan.tensor_bytes());
  EXPECT_EQ(alone.at("parameter_bytes").as_int() + alone.at("gradient_bytes").as_int() +
                alone.at("state_bytes").as_int() + alone.at("pool_bytes").as_int() +
                alone.at("activation_bytes").as_int(),
            plan.tensor_bytes());
  EXPECT_EQ(alone.at("estimates").at("16").as_int(), plan.parameter_count * 16 / 2);
  EXPECT_TRUE(alone.at("fits").is_null());
  const fsdp::Json small = plan_report(config, place_of(2), Limit{plan.tensor_bytes() - 1, false, "a test"});
  EXPECT_FALSE(small.at("fits").as_bool());
  EXPECT_THAT(small.at("misfit").as_string(), HasSubstr("(a test)"));
  EXPECT_THAT(small.at("remedies").as_array(), Not(IsEmpty()));
}

}  // namespace
}  // namespace worker::testing
