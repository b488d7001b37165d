// Goal: what a run file says of the optimizer is what trains.
// Method: Trainers in this process, with every optimizer, each setting changed alone, and runs that are resumed.
#include "worker/train/optimizer_of_run.h"

#include <gmock/gmock.h>

#include <map>
#include <set>
#include <string_view>

#include "tests/worker/temporary_folder.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/train/step_measures.h"

namespace worker::testing {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

const char* const kOptimizers[] = {
    R"(,"optimizer":"adamw")",
    R"(,"optimizer":"adam")",
    R"(,"moments":"bf16")",
    R"(,"moments":"int8")",
    R"(,"optimizer":"lion")",
    R"(,"optimizer":"adafactor")",
    R"(,"optimizer":"muon")",
    R"(,"optimizer":"sgd")",
    R"(,"optimizer":"sgd","momentum":0.8,"dampening":0.5)",
    R"(,"optimizer":"sgd","momentum":0.8,"nesterov":true)",
    R"(,"optimizer":"sgd","momentum":0)",
};

std::vector<double> losses(const std::vector<Listener>& ranks) {
  std::vector<double> out;
  for (const auto& report : ranks[0].steps) out.push_back(value_of(report.values, "loss").value());
  return out;
}

std::vector<double> losses_of(const std::string& train_members, double rate = 0.003) {
  const TemporaryFolder folder;
  std::vector<Listener> ranks(1);
  RunConfig config = run_of(folder, R"(,"steps":5)" + train_members);
  config.train.learning_rate = rate;
  train(config, ranks);
  return losses(ranks);
}

TEST(Optimizers, EachTrainsInItsOwnWay) {
  std::set<double> last;
  for (const char* optimizer : kOptimizers) {
    const bool sgd = std::string_view(optimizer).find("sgd") != std::string_view::npos;
    const auto curve = losses_of(optimizer, sgd ? 0.3 : 0.003);
    EXPECT_LT(curve.back(), curve.front()) << optimizer;
    EXPECT_TRUE(last.insert(curve.back()).second) << optimizer << " trains like another one";
  }
}

TEST(Optimizers, EachGoesOnBitForBitAfterAResume) {
  for (const char* optimizer : kOptimizers) {
    const auto whole = losses_of(optimizer);
    const TemporaryFolder folder;
    const RunConfig config = run_of(folder, std::string(R"(,"steps":5)") + optimizer);
    std::vector<Listener> first(1), second(1);
    first[0].save_at = 2;
    train(config, first);
    train(config, second, 2);
    EXPECT_THAT(losses(second), ElementsAre(whole[2], whole[3], whole[4])) << optimizer;
  }
}

TEST(Optimizers, EverySettingChangesTheTraining) {
  const std::map<std::string, std::string> changes[] = {
      {{"", R"(,"weight_decay":1)"},
       {"decay falls", R"(,"weight_decay":1,"final_weight_decay":0,"weight_decay_schedule":"linear")"},
       {"decay falls in a curve", R"(,"weight_decay":1,"final_weight_decay":0,"weight_decay_schedule":"cosine")"},
       {"beta1", R"(,"weight_decay":1,"beta1":0.5)"},
       {"beta2", R"(,"weight_decay":1,"beta2":0.5)"},
       {"epsilon", R"(,"weight_decay":1,"epsilon":0.01)"},
       {"moments", R"(,"weight_decay":1,"moments":"bf16")"},
       {"moments, other bits", R"(,"weight_decay":1,"moments":"int8")"},
       {"layer decay", R"(,"weight_decay":1,"layer_decay":0.5)"},
       {"clipped", R"(,"weight_decay":1,"epsilon":0.01,"clip_norm":0.01)"},
       {"clipped by the largest", R"(,"weight_decay":1,"epsilon":0.01,"clip_norm":0.01,"clip_norm_type":"inf")"},
       {"clipped by the sum", R"(,"weight_decay":1,"epsilon":0.01,"clip_norm":0.01,"clip_norm_type":"1")"},
       {"clipped by the third norm", R"(,"weight_decay":1,"epsilon":0.01,"clip_norm":0.01,"clip_norm_type":"3")"},
       {"rate in steps", R"(,"weight_decay":1,"schedule":"step","step_size":2,"gamma":0.5)"},
       {"rate in larger steps", R"(,"weight_decay":1,"schedule":"step","step_size":2,"gamma":0.25)"},
       {"rate in early steps", R"(,"weight_decay":1,"schedule":"step","step_size":1,"gamma":0.5)"}},
      {{"", R"(,"optimizer":"sgd")"},
       {"momentum", R"(,"optimizer":"sgd","momentum":0.5)"},
       {"dampening", R"(,"optimizer":"sgd","dampening":0.5)"},
       {"nesterov", R"(,"optimizer":"sgd","nesterov":true)"},
       {"decay", R"(,"optimizer":"sgd","weight_decay":1)"}},
      {{"", R"(,"optimizer":"lion")"},
       {"beta1", R"(,"optimizer":"lion","beta1":0.2)"},
       {"beta2", R"(,"optimizer":"lion","beta2":0.1)"},
       {"decay", R"(,"optimizer":"lion","weight_decay":3)"}},
      {{"", R"(,"optimizer":"muon")"},
       {"momentum", R"(,"optimizer":"muon","momentum":0.5)"},
       {"nesterov", R"(,"optimizer":"muon","nesterov":false)"},
       {"beta1", R"(,"optimizer":"muon","beta1":0.5)"},
       {"decay", R"(,"optimizer":"muon","weight_decay":3)"}},
      {{"", R"(,"optimizer":"adafactor")"}, {"decay", R"(,"optimizer":"adafactor","weight_decay":3)"}},
  };
  for (const auto& group : changes) {
    std::map<double, std::string> seen;
    for (const auto& [name, members] : group) {
      const auto [same, is_new] = seen.emplace(losses_of(members).back(), name);
      EXPECT_TRUE(is_new) << "\"" << name << "\" trains like \"" << same->second << "\"";
    }
  }
}

TEST(Optimizers, ReportTheNormThatIsClipped) {
  const TemporaryFolder folder;
  std::vector<double> norms;
  for (const char* type : {"inf", "3", "2", "1.5", "1"}) {
    std::vector<Listener> ranks(1);
    train(run_of(folder, R"(,"steps":1,"clip_norm_type":")" + std::string(type) + "\"", "", type), ranks);
    norms.push_back(value_of(ranks[0].steps[0].values, "grad_norm").value());
  }
  for (std::size_t i = 1; i < norms.size(); ++i) EXPECT_LT(norms[i - 1], norms[i]) << i;
}

TEST(Optimizers, AResumeWithAnotherOneIsAnErrorThatNamesBothAndTheRemedy) {
  const TemporaryFolder folder;
  std::vector<Listener> first(1), second(1);
  train(run_of(folder, R"(,"steps":1)"), first);
  std::string failure;
  second[0].on_failure = [&](const std::string& text) { failure = text; };
  train(run_of(folder, R"(,"steps":2,"optimizer":"lion")"), second, 2);
  EXPECT_THAT(failure, HasSubstr("checkpoints/step-00000001 was saved with the optimizer adamw, and this run has lion "
                                 "for its model (set otherwise: "));
  EXPECT_THAT(failure, HasSubstr("train.optimizer = lion (adamw until then)"));
  EXPECT_THAT(failure, HasSubstr("; restore the run file, or use a new checkpoint.folder"));
}

TEST(Optimizers, AResumeWithOtherMomentsIsAnErrorThatNamesTheSetting) {
  const TemporaryFolder folder;
  std::vector<Listener> first(1), second(1);
  train(run_of(folder, R"(,"steps":1,"moments":"bf16")"), first);
  std::string failure;
  second[0].on_failure = [&](const std::string& text) { failure = text; };
  train(run_of(folder, R"(,"steps":2)"), second, 2);
  EXPECT_THAT(failure, HasSubstr("was saved with the optimizer adamw of states exp_avg_bf16, exp_avg_sq_bf16, and this "
                                 "run has adamw for its model of states exp_avg, exp_avg_sq"));
  EXPECT_THAT(failure, HasSubstr("train.moments = fp32 (bf16 until then)"));
}

TEST(LayerDecay, CountsLayersFromTheOutput) {
  const TemporaryFolder folder;
  const RunConfig config = run_of(folder, "");  // three layers
  const auto recipe = make_recipe(config);
  const auto layers_above = recipe->parts().at(0).layers_above;
  EXPECT_EQ(layers_above("lm_head.weight"), 0);
  EXPECT_EQ(layers_above("model.norm.weight"), 0);
  EXPECT_EQ(layers_above("model.layers.2.mlp.up_proj.weight"), 1);
  EXPECT_EQ(layers_above("model.layers.0.self_attn.q_proj.weight"), 3);
  EXPECT_EQ(layers_above("model.embed_tokens.weight"), 4);
}

}  // namespace
}  // namespace worker::testing
