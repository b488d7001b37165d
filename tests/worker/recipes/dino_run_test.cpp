// Goal: the parts of a self-distillation have their own precision and sharding, its schedules and rates follow their
// keys, and it trains in 16 bits.
// Method: the recipe itself on one rank, asked for single losses and steps; and small runs of two ranks.
#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/allclose.h>
#include <gmock/gmock.h>

#include <cmath>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "base/usage_error.h"
#include "tests/worker/image_folder.h"
#include "tests/worker/trainer_ranks.h"
#include "worker/recipes/registry.h"
#include "worker/train/step_measures.h"
#include "worker/train/train_parts.h"

namespace worker::testing {
namespace {

using ::testing::HasSubstr;

constexpr const char* kHeads =
    R"("prototypes":16,"head_hidden_size":24,"head_bottleneck_size":8,"knn_neighbours":3,"knn_samples":24)";

/// Members of tables begin with a comma.
struct Keys {
  std::string train = "", fsdp = "", model = "";
};

RunConfig config_of(const std::filesystem::path& data, const std::filesystem::path& folder, const Keys& keys) {
  return parse_run_config(
      R"({"format":1,"name":"test","recipe":"dino","model":{"hidden_size":32,"num_hidden_layers":2,)"
      R"("num_attention_heads":4,"image_size":16,"patch_size":4)" +
      keys.model + R"(},"data":{"prepared":")" + data.native() +
      R"(","local_crops":2,"local_crops_size":8},"train":{)" + kHeads +
      R"(,"batch_size":12,"steps":10,"warmup_steps":0,"seed":3)" + keys.train + R"(},"fsdp":{"wrap":"block")" +
      keys.fsdp + R"(},"checkpoint":{"every_steps":0,"folder":")" + (folder / "checkpoints").native() + "\"}}");
}

/// A self-distillation on one rank, before its first step.
class OneRank {
 public:
  OneRank(const ImageFolder& images, const Keys& keys)
      : config_(config_of(images.path(), folder_.path(), keys)), recipe_(make_recipe(config_)) {
    recipe_->open_data("", agent::rank::RankEnvironment());
    parts_.emplace(recipe_->parts(), mesh_, config_);
    recipe_->attach(*parts_);
    recipe_->first_values(*parts_);
  }

  Parts& parts() { return *parts_; }
  Recipe& recipe() { return *recipe_; }

  /// The losses of the same eight images each time: the sum, and those of step_series().
  Losses losses() {
    return recipe_->loss(
        recipe_->data(Split::kTrain)
            ->collate(std::vector<std::int64_t>{0, 1, 2, 3, 4, 5, 6, 7}, std::vector<std::uint64_t>(8)));
  }
  double dino_loss() {
    const at::NoGradGuard no_grad;
    return losses().more.at(0).item<double>();
  }

  /// How far a step of plain gradient descent moves each parameter of the student, as the length of the move.
  std::map<std::string, double> moves() {
    const auto before = parts_->trained().gather_full_state();
    losses().sum.backward();
    parts_->optimizer().step(1.0);
    std::map<std::string, double> out;
    for (const auto& [name, value] : parts_->trained().gather_full_state())
      out[name] = (value - before.at(name)).norm().item<double>();
    return out;
  }

 private:
  const TemporaryFolder folder_;
  const RunConfig config_;
  fsdp::DeviceMesh mesh_{nullptr, 0, 1, {}};
  std::unique_ptr<Recipe> recipe_;
  std::optional<Parts> parts_;
};

std::map<std::string, fsdp::ShardOptions> options_of(fsdp::ShardedModel& model) {
  std::map<std::string, fsdp::ShardOptions> out;
  for (const auto& unit : model.units()) out[unit->name()] = unit->options();
  return out;
}

TEST(DinoParts, HaveThePrecisionOfTheRunUnlessTheyHaveTheirOwn) {
  const ImageFolder images;
  OneRank alike(images, {.train = R"(,"precision":"bf16")"});
  for (const char* part : {"student", "teacher"}) {
    const auto units = options_of(alike.parts().model(part));
    EXPECT_EQ(units.size(), 4U) << "two blocks, the head, the root";
    for (const auto& [name, options] : units) EXPECT_EQ(options.precision.param_dtype, at::kBFloat16) << name;
  }
  OneRank own(images, {.train = R"(,"precision":"bf16","teacher_precision":"fp16","heads_precision":"fp32")",
                       .fsdp = R"(,"reduce_precision":"fp32","heads_reduce_precision":"bf16")"});
  const auto student = options_of(own.parts().model("student")), teacher = options_of(own.parts().model("teacher"));
  for (const auto& [name, options] : student) {
    const bool head = name.find("head") != std::string::npos;
    EXPECT_EQ(options.precision.param_dtype, head ? at::kFloat : at::kBFloat16) << name;
    EXPECT_EQ(options.precision.reduce_dtype, head ? at::kBFloat16 : at::kFloat) << name;
    EXPECT_EQ(teacher.at(name).precision.param_dtype, head ? at::kFloat : at::kHalf) << name;
  }
  EXPECT_TRUE(std::isfinite(own.dino_loss()));
}

TEST(DinoParts, KeepNormsInFp32WhereTheRunAsksForIt) {
  const ImageFolder images;
  OneRank own(images, {.train = R"(,"precision":"bf16","teacher_precision":"fp16")", .fsdp = R"(,"fp32_norms":true)"});
  for (const auto& [name, options] : options_of(own.parts().model("teacher"))) {
    ASSERT_TRUE(options.precision.param_dtype_of) << name;
    fsdp::ParameterInfo norm, matrix;
    norm.name = "norm1.weight";
    norm.shape = {32};
    matrix.name = "fc1.weight";
    matrix.shape = {32, 32};
    EXPECT_EQ(options.precision.param_dtype_of(norm), at::kFloat);
    EXPECT_EQ(options.precision.param_dtype_of(matrix), at::kHalf);
  }
}

TEST(DinoParts, HaveTheStrategyOfTheRunUnlessTheyHaveTheirOwn) {
  const ImageFolder images;
  OneRank own(images,
              {.fsdp = R"(,"strategy":"full_shard","teacher_strategy":"zero1","heads_strategy":"shard_grad_op")"});
  for (const auto& [name, options] : options_of(own.parts().model("teacher"))) {
    EXPECT_FALSE(options.reshard_after_forward) << name;
    EXPECT_FALSE(options.reshard_after_backward) << name;
  }
  for (const auto& [name, options] : options_of(own.parts().model("student"))) {
    if (name == "root") continue;  // the root is kept from forward to backward anyway
    EXPECT_EQ(options.reshard_after_forward, name.find("head") == std::string::npos) << name;
    EXPECT_TRUE(options.reshard_after_backward) << name;
  }
}

std::string refusal_of(const Keys& keys) {
  try {
    config_of("/data", "/runs", keys);
    return "no error";
  } catch (const base::UsageError& error) {
    return error.what();
  }
}

TEST(DinoParts, AreRefusedWhatWouldHaveNoEffectOrLoseGradients) {
  EXPECT_THAT(refusal_of({.fsdp = R"(,"strategy":"no_shard","teacher_strategy":"zero1")"}),
              HasSubstr("fsdp.teacher_strategy = \"zero1\": want \"run\" with fsdp.strategy = \"no_shard\""));
  EXPECT_THAT(refusal_of({.fsdp = R"(,"teacher_strategy":"shard_grad_op")"}),
              HasSubstr("want \"full_shard\" or \"zero1\", because the teacher has no backward"));
  EXPECT_THAT(refusal_of({.train = R"(,"heads_precision":"fp16")"}),
              HasSubstr("train.heads_precision = \"fp16\": want train.precision = \"fp16\" with it"));
  EXPECT_THAT(refusal_of({.fsdp = R"(,"heads_reduce_precision":"fp16")"}),
              HasSubstr("fsdp.heads_reduce_precision = \"fp16\": want train.precision = \"fp16\" with it"));
}

TEST(DinoParts, ReadImagesOfThreeColors) {
  const ImageFolder images;
  try {
    OneRank(images, {.model = R"(,"num_channels":1)"});
    ADD_FAILURE();
  } catch (const base::UsageError& error) {
    EXPECT_THAT(error.what(), HasSubstr("model.num_channels = 1: prepared images have red, green and blue"));
  }
}

TEST(DinoSchedules, TheTeachersTemperatureRisesOverItsEpochs) {
  const ImageFolder images;
  OneRank rising(images, {.train = R"(,"temperature_warmup_epochs":2,"first_teacher_temperature":0.02,)"
                                   R"("teacher_temperature":0.1)"});
  const auto at_epoch = [&](double epoch) {
    rising.recipe().before_step(0, epoch);
    return rising.dino_loss();
  };
  OneRank low(images, {.train = R"(,"temperature_warmup_epochs":0,"teacher_temperature":0.02)"});
  low.recipe().before_step(0, 0);
  OneRank middle(images, {.train = R"(,"temperature_warmup_epochs":0,"teacher_temperature":0.06)"});
  middle.recipe().before_step(0, 0);
  OneRank high(images, {.train = R"(,"temperature_warmup_epochs":0,"teacher_temperature":0.1)"});
  high.recipe().before_step(0, 0);
  // Each loss moves the centre, so all recipes are asked as often.
  for (const auto& [epoch, other] :
       std::initializer_list<std::pair<double, OneRank*>>{{0, &low}, {1, &middle}, {2, &high}, {9, &high}}) {
    const double want = other->dino_loss();
    for (OneRank* one : {&low, &middle, &high})
      if (one != other) one->dino_loss();
    EXPECT_NEAR(at_epoch(epoch), want, 1e-6) << epoch;
  }
}

TEST(DinoSchedules, PrototypesStandStillInTheirFirstEpochs) {
  const ImageFolder images;
  OneRank one(images, {.train = R"(,"optimizer":"sgd","momentum":0,"weight_decay":0,"clip_norm":0,)"
                                R"("freeze_last_layer_epochs":2)"});
  for (const double epoch : {0.0, 1.9, 2.0}) {
    one.recipe().before_step(0, epoch);
    const auto moves = one.moves();
    one.parts().trained().zero_grad();
    EXPECT_EQ(moves.at("dino_head.last_layer.weight_v") > 0, epoch >= 2) << epoch;
    EXPECT_GT(moves.at("dino_head.mlp.0.weight"), 0) << epoch;
  }
}

TEST(DinoSchedules, TheTeacherTakesLessOfTheStudentTowardsTheEnd) {
  const ImageFolder images;
  OneRank one(images, {.train = R"(,"teacher_momentum":0.5,"final_teacher_momentum":0.9)"});
  const auto share_of_student = [&](std::int64_t step) {
    const at::NoGradGuard no_grad;
    auto teacher = one.parts().model("teacher").gather_full_state();
    auto student = teacher;
    for (auto& [name, value] : student) value = value + 1;
    one.parts().trained().load_full_state(student);
    one.recipe().after_step(step);
    const auto now = one.parts().model("teacher").gather_full_state();
    const std::string name = "backbone.encoder.layer.0.norm1.weight";
    return (now.at(name) - teacher.at(name)).mean().item<double>();
  };
  EXPECT_NEAR(share_of_student(5), 1 - 0.7, 1e-5) << "half of the way by the cosine";
  EXPECT_NEAR(share_of_student(10), 1 - 0.9, 1e-5);
}

TEST(DinoSchedules, LayersBelowAndThePatchesLearnSlowerAndHeadsDoNot) {
  const ImageFolder images;
  const std::string plain = R"(,"optimizer":"sgd","momentum":0,"weight_decay":0,"clip_norm":0,)"
                            R"("freeze_last_layer_epochs":0,"patch_embed_rate":)";
  OneRank alike(images, {.train = plain + "1"});
  OneRank slower(images, {.train = plain + R"(0.25,"layer_decay":0.5)"});
  alike.recipe().before_step(0, 0);
  slower.recipe().before_step(0, 0);
  const auto full = alike.moves(), less = slower.moves();
  const auto share = [&](const std::string& name) { return less.at(name) / full.at(name); };
  EXPECT_NEAR(share("dino_head.mlp.0.weight"), 1, 1e-4);
  EXPECT_NEAR(share("backbone.encoder.layer.1.mlp.fc1.weight"), 0.5, 1e-4);
  EXPECT_NEAR(share("backbone.encoder.layer.0.mlp.fc1.weight"), 0.25, 1e-4);
  EXPECT_NEAR(share("backbone.embeddings.patch_embeddings.projection.weight"), 0.125 * 0.25, 1e-4);
}

// With layer scales of 1e-5 fp16 cannot tell the images apart at first, and KoLeo's gradient would have no bound.
TEST(DinoRun, TrainsInFp16FromLayersThatBeginAsNothing) {
  const ImageFolder images;
  for (const char* centering : {"centering", "sinkhorn_knopp"}) {
    SCOPED_TRACE(centering);
    const TemporaryFolder folder;
    RunConfig config = config_of(images.path(), folder.path(),
                                 {.train = R"(,"precision":"fp16","koleo_weight":0.1,"learning_rate":0.002,)"
                                           R"("validation_every_steps":0,"centering":")" +
                                           std::string(centering) + "\"",
                                  .model = R"(,"layerscale_value":1e-5)"});
    config.train.steps = 40;
    std::vector<Listener> ranks(2);
    train(config, ranks);
    ASSERT_EQ(ranks[0].steps.size(), 40U);
    EXPECT_LT(value_of(ranks[0].steps.back().values, "skipped_steps").value_or(0), 15) << "the scale finds its place";
    for (const auto& step : ranks[0].steps) EXPECT_TRUE(std::isfinite(value_of(step.values, "loss").value_or(0)));
  }
}

}  // namespace
}  // namespace worker::testing
