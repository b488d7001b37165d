// Goal: twenty steps of self-distillation give the losses, the student, the teacher and the centres that a second
// computation gives, at one rank and at two. Method: tests/peers/dino_judge.py writes weights and batches, and trains
// with transformers' backbone. The recipe itself trains on the same batches, from the same weights, in a whole run.
// Ranks are threads. Skipped without a Python for it; see peer_python.h.
#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/equal.h>
#include <ATen/ops/stack.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "data/order/order.h"
#include "fsdp/files/tensor_files.h"
#include "fsdp/optim/average.h"
#include "tests/worker/image_folder.h"
#include "tests/worker/peer_python.h"
#include "tests/worker/recipe_runs.h"

namespace worker::testing {
namespace {

namespace fs = std::filesystem;

constexpr std::int64_t kJudgedSteps = 20, kJudgedImages = 4;

/// The batches of a folder of the judge, image by image. The order of a run shuffles samples, so the sample at position
/// p of the order stands for image p % 4 of step p / 4.
class JudgedCrops : public BatchSource {
 public:
  JudgedCrops(const fs::path& folder, std::uint64_t seed) : batches_(folder / "batches.safetensors") {
    data::order::Order order({.samples = samples(), .seed = seed});
    positions_.resize(static_cast<std::size_t>(samples()));
    for (std::int64_t position = 0; position < samples(); ++position)
      positions_[static_cast<std::size_t>(order.at(position))] = position;
  }

  std::int64_t samples() const override { return kJudgedSteps * kJudgedImages; }

  Batch collate(std::span<const std::int64_t> samples, std::span<const std::uint64_t>) const override {
    std::vector<at::Tensor> global, local, masks;  // by image: [views, ...]
    for (const auto sample : samples) {
      const std::int64_t position = positions_[static_cast<std::size_t>(sample)];
      const std::int64_t step = position / kJudgedImages, image = position % kJudgedImages;
      const auto of_step = [&](const char* name) { return batches_.tensor(name)[step]; };
      global.push_back(at::stack({of_step("first")[image], of_step("second")[image]}));
      local.push_back(of_step("local").select(1, image));
      masks.push_back(of_step("masks").select(1, image));
    }
    const auto by_view = [](const std::vector<at::Tensor>& of_images) { return at::stack(of_images, 1).flatten(0, 1); };
    Batch batch;
    const at::Tensor mask = by_view(masks), share = 1 / mask.sum(1, /*keepdim=*/true).clamp_min(1).to(at::kFloat);
    const at::Tensor masked = mask.flatten().nonzero().squeeze(1);
    batch.tensors = {{"global_crops", by_view(global)},
                     {"local_crops", by_view(local)},
                     {"masks", mask},
                     {"masked", masked},
                     {"mask_weight", share.expand_as(mask).reshape(-1).index_select(0, masked)}};
    batch.samples = static_cast<std::int64_t>(samples.size());
    batch.weight = static_cast<double>(batch.samples);
    return batch;
  }

 private:
  const fsdp::SafetensorsReader batches_;
  std::vector<std::int64_t> positions_;  // by sample
};

/// The recipe dino, but for what it trains on and begins with.
class JudgedDino : public Recipe {
 public:
  JudgedDino(const RunConfig& config, fs::path folder)
      : dino_(make_recipe(config)),
        folder_(std::move(folder)),
        crops_(std::make_shared<JudgedCrops>(folder_, static_cast<std::uint64_t>(config.train.seed))) {}

  std::shared_ptr<const BatchSource> data(Split split) const override {
    return split == Split::kTrain ? crops_ : nullptr;
  }
  std::string first_values(Parts& parts) override {
    std::string origin = dino_->first_values(parts);
    const auto student = parts.trained().gather_full_state(), teacher = parts.model("teacher").gather_full_state();
    for (const auto& [name, value] : student) EXPECT_TRUE(at::equal(teacher.at(name), value)) << "at first: " << name;
    for (const char* part : {"student", "teacher"})
      fsdp::load_tensors(parts.model(part), fsdp::TensorFiles(folder_ / fsdp::kModelFile));
    return origin;
  }

  std::string data_source() const override { return dino_->data_source(); }
  RunData open_data(const std::string& began_with, const agent::rank::RankEnvironment& place) override {
    return dino_->open_data(began_with, place);
  }
  Batch of_sizes(std::int64_t samples) const override { return dino_->of_sizes(samples); }
  std::vector<Part> parts() override { return dino_->parts(); }
  void attach(Parts& parts) override { dino_->attach(parts); }
  void before_step(std::int64_t step, double epoch) override { dino_->before_step(step, epoch); }
  Losses loss(const Batch& batch) override { return dino_->loss(batch); }
  std::string why_no_fixed_shapes() const override { return dino_->why_no_fixed_shapes(); }
  std::vector<std::string> step_series() const override { return dino_->step_series(); }
  void after_step(std::int64_t step) override { dino_->after_step(step); }
  void save(fsdp::Json& extra) const override { dino_->save(extra); }
  void load(const fsdp::Json& extra) override { dino_->load(extra); }
  fsdp::ShardedModel& exported(Parts& parts, fsdp::ExportOptions& options) override {
    return dino_->exported(parts, options);
  }

 private:
  const std::unique_ptr<Recipe> dino_;
  const fs::path folder_;
  const std::shared_ptr<const BatchSource> crops_;
};

/// A training of the judge, and the members of tables that ask for it. They begin with a comma.
struct JudgedTraining {
  const char *name, *model, *train;
};

/// The settings that dino_judge.py has as constants.
RunConfig judged_config(const JudgedTraining& judged, const ImageFolder& images, const fs::path& folder) {
  RunConfig config = run("dino",
                         R"("hidden_size":16,"num_hidden_layers":2,"num_attention_heads":2,"image_size":16,)"
                         R"("patch_size":4,"qkv_bias":false,"layerscale_value":0.5)" +
                             std::string(judged.model),
                         images.path(), folder,
                         R"(,"steps":20,"schedule":"constant","weight_decay":0.04,"beta2":0.999,"clip_norm":0,)"
                         R"("prototypes":32,"head_hidden_size":24,"head_bottleneck_size":8,"head_layers":3,)"
                         R"("dino_weight":0.8,"ibot_weight":1.5,"koleo_weight":0.1,"student_temperature":0.1,)"
                         R"("first_teacher_temperature":0.04,"teacher_temperature":0.07,)"
                         R"("temperature_warmup_epochs":0.5,"teacher_momentum":0.8,"final_teacher_momentum":0.95,)"
                         R"("center_momentum":0.9,"freeze_last_layer_epochs":0.15,"patch_embed_rate":0.2)" +
                             std::string(judged.train),
                         R"(,"local_crops":2,"local_crops_size":8)");
  config.train.learning_rate = config.train.min_learning_rate = 1e-3;
  config.train.batch_size = kJudgedImages;
  config.train.validation_every_steps = 0;
  config.checkpoint.every_steps = 5;
  config.checkpoint.keep = 4;
  return config;
}

void expect_losses(const std::vector<agent::rank::StepReport>& steps, const fsdp::SafetensorsReader& judged) {
  for (const char* series : {"loss", "dino_loss", "ibot_loss", "koleo_loss"}) {
    const at::Tensor want = judged.tensor(series);
    const auto got = values(steps, series);
    ASSERT_EQ(static_cast<std::int64_t>(got.size()), kJudgedSteps) << series;
    for (std::int64_t step = 0; step < kJudgedSteps; ++step) {
      const double expected = want[step].item<double>();
      EXPECT_NEAR(got[static_cast<std::size_t>(step)], expected, 1e-4 * std::abs(expected))
          << series << " of step " << step + 1;
    }
  }
}

void expect_checkpoints(const fs::path& folder, const fsdp::SafetensorsReader& judged) {
  const auto saved = fsdp::list_checkpoints(folder).valid;
  ASSERT_EQ(saved.size(), 4U);
  for (const auto& checkpoint : saved) {
    const auto got = tensors_of(checkpoint);
    const std::string prefix = std::to_string(checkpoint.step) + "/";
    int compared = 0;
    for (const auto& [name, entry] : judged.entries()) {
      if (!name.starts_with(prefix)) continue;
      const auto found = got.find(name.substr(prefix.size()));
      ASSERT_NE(found, got.end()) << name;
      const at::Tensor want = judged.tensor(name).flatten();
      ASSERT_EQ(found->second.sizes(), want.sizes()) << name;
      EXPECT_LE((found->second - want).norm().item<double>(), 1e-4 * want.norm().item<double>()) << name;
      ++compared;
    }
    EXPECT_GT(compared, 80) << "student, teacher and two centres";
  }
}

TEST(DinoTraining, AgreesAtOneRankAndAtTwo) {
  const std::string python = peer_python();
  if (python.empty()) GTEST_SKIP() << kNoPeerPython;
  const TemporaryFolder judged;
  run_peer(python, "dino_judge.py", {judged.path().native(), "training"}, judged.path());
  const ImageFolder images;
  for (const auto& training :
       {JudgedTraining{"centred", "", R"(,"centering":"centering")"},
        {"balanced", R"(,"num_register_tokens":2,"use_swiglu_ffn":true)",
         R"(,"centering":"sinkhorn_knopp","ibot_separate_head":true)"},
        {"centred_heads", R"(,"num_register_tokens":1)", R"(,"centering":"centering","ibot_separate_head":true)"}}) {
    for (const std::size_t ranks : {1U, 2U}) {
      SCOPED_TRACE(std::string(training.name) + ", " + std::to_string(ranks) + " ranks");
      const TemporaryFolder folder;
      std::vector<Listener> listeners(ranks);
      train(judged_config(training, images, folder.path()), listeners, 1,
            [&](const RunConfig& config) { return std::make_unique<JudgedDino>(config, judged / training.name); });
      const fsdp::SafetensorsReader want(judged / training.name / (std::to_string(ranks) + ".safetensors"));
      expect_losses(listeners[0].steps, want);
      expect_checkpoints(folder / "checkpoints", want);
    }
  }
}

}  // namespace
}  // namespace worker::testing
