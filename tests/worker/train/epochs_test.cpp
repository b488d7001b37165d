// Goal: a training may be as long as so many passes over its data, may be evaluated by passes, and may end early.
// Method: small trainings on two ranks.
#include <gmock/gmock.h>

#include "tests/worker/trainer_ranks.h"
#include "worker/train/step_measures.h"

namespace worker::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

/// The steps after which this training was evaluated.
std::vector<std::int64_t> evaluated(const std::vector<agent::rank::StepReport>& steps) {
  std::vector<std::int64_t> out;
  for (const auto& step : steps) {
    if (value_of(step.values, "validation/loss")) out.push_back(step.step);
  }
  return out;
}

// The built-in text has 897 training rows of 32 tokens.
TEST(Epochs, TakeThePlaceOfSteps) {
  const TemporaryFolder folder;
  RunConfig config = run_of(folder, R"(,"epochs":1.5,"batch_size":128,"validation_every_epochs":0.5)");
  EXPECT_EQ(config.train.steps, 0);
  std::vector<Listener> ranks(2);
  EXPECT_EQ(train(config, ranks)[0].reason, "all 11 steps done") << "1.5 x 897 / 128 = 10.5";
  EXPECT_EQ(ranks[0].steps.size(), 11U);
  EXPECT_EQ(ranks[0].words.total_steps, 11);
  EXPECT_THAT(evaluated(ranks[0].steps), ElementsAre(4, 8, 11)) << "0.5, 1 and 1.5 are reached in steps 4, 8 and 11";
  EXPECT_EQ(evaluated(ranks[1].steps), evaluated(ranks[0].steps));
}

TEST(Epochs, GiveTheScheduleItsLength) {
  const TemporaryFolder folder;
  RunConfig config = run_of(folder, R"(,"epochs":1.5,"batch_size":128,"schedule":"linear","min_learning_rate":0)");
  std::vector<Listener> ranks(1);
  train(config, ranks);
  EXPECT_NEAR(value_of(ranks[0].steps.back().values, "learning_rate").value_or(0), 0.003 / 11, 1e-9);
}

TEST(EarlyStopping, EndsTheTrainingOnAllRanksSavedAndExported) {
  const TemporaryFolder folder;
  // A rate at which nothing is learnt: no evaluation is better than the first by a tenth.
  RunConfig config = run_of(folder, R"(,"steps":20,"batch_size":8,"validation_every_steps":2,"early_stop":3,)"
                                    R"("early_stop_least":0.1)");
  config.train.learning_rate = config.train.min_learning_rate = 1e-9;
  config.exports.folder = (folder / "out").native();
  std::vector<Listener> ranks(2);
  const auto outcomes = train(config, ranks);
  for (const auto& outcome : outcomes) {
    EXPECT_EQ(outcome.code, spec::kExitDone);
    EXPECT_THAT(outcome.reason, HasSubstr("stopped early: 3 validations in a row have found nothing more than 0.1 "
                                          "better than"));
  }
  EXPECT_EQ(ranks[0].steps.size(), 8U);
  EXPECT_EQ(ranks[0].saved, std::vector<std::int64_t>{8});
  EXPECT_TRUE(std::filesystem::exists(folder / "out/model.safetensors"));
  std::vector<Listener> again(1);
  EXPECT_THAT(train(config, again, 2)[0].reason, HasSubstr("stopped early"))
      << "an attempt after the end makes no step";
  EXPECT_TRUE(again[0].steps.empty());
}

TEST(Frozen, ParametersStayAsTheyWere) {
  const TemporaryFolder folder;
  const auto states = [&](const std::string& more) {
    std::vector<Listener> ranks(2);
    train(run_of(folder, R"(,"steps":2)" + more, "", "checkpoints" + std::to_string(more.size())), ranks);
    return ranks[0].steps.size();
  };
  EXPECT_EQ(states(R"(,"frozen":"model.embed_tokens model.layers.0.")"), 2U);
  std::vector<Listener> ranks(1);
  std::string error;
  ranks[0].on_failure = [&](const std::string& text) { error = text; };
  train(run_of(folder, R"(,"steps":2,"frozen":"model.layer.")"), ranks);
  EXPECT_THAT(error, HasSubstr("train.frozen: the model has no parameter whose name begins with \"model.layer.\"; its "
                               "first is model.embed_tokens.weight"));
}

}  // namespace
}  // namespace worker::testing
