// A decoder learns from a text and from what a larger decoder says about it (Hinton et al., Distilling the Knowledge in
// a Neural Network, arXiv 1503.02531): the recipe of docs/new-recipe.md.
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/log_softmax.h>

#include <array>
#include <memory>
#include <string>
#include <string_view>

#include "base/usage_error.h"
#include "data/order/masking.h"
#include "fsdp/engine/initialize.h"
#include "spec/recipes.h"
#include "spec/tables/checkpoint_keys.h"
#include "spec/tables/gpt_neox_keys.h"
#include "spec/tables/llama_keys.h"
#include "spec/tables/optimizer_keys.h"
#include "spec/tables/sharding_keys.h"
#include "spec/tables/text_data_keys.h"
#include "spec/tables/training_keys.h"
#include "worker/models/causal_model.h"
#include "worker/recipes/data_of_run.h"
#include "worker/train/evaluation.h"
#include "worker/train/recipe.h"
#include "worker/train/start_weights.h"

namespace worker {

namespace {

// The keys: a struct, a row for each member, a table.

struct DistillOptions {
  std::string teacher;        // folder
  double temperature = 0;     // both answers are softened by it
  double teacher_weight = 0;  // of the teacher's part of the loss; the text's has the rest
};

constexpr auto kKeys = std::to_array<spec::Key>({
    spec::row::path("train.teacher",
                    "Folder of the Hugging Face model, of the same family and tokenizer, that the model learns from.",
                    spec::into<&DistillOptions::teacher>),
    spec::row::real("train.temperature", "2", spec::above(0, 100),
                    "Both models' answers are divided by it before they are compared.",
                    spec::into<&DistillOptions::temperature>),
    spec::row::real("train.teacher_weight", "0.5", {0, 1},
                    "Share of the loss that compares with the teacher. The rest is the text's own.",
                    spec::into<&DistillOptions::teacher_weight>),
});

const spec::Table& distill_keys() {
  static const spec::Table table{"distill", kKeys};
  return table;
}

// The recipe.

constexpr std::string_view kTeacher = "teacher";

/// The run as if it trained the teacher: [model] holds its folder alone, so config.json there gives the sizes.
RunConfig of_teacher(const RunConfig& run, const std::string& folder) {
  if (folder.empty()) throw base::UsageError("train.teacher is missing; give the folder of a Hugging Face model");
  RunConfig out = run;
  out.values = {};
  for (const auto& [name, value] : run.values)
    if (!name.starts_with("model.")) out.values.set(name, value);
  out.values.set("model.pretrained", folder);
  out.checkpoint.folder.clear();  // the checkpoints describe the student
  return out;
}

class Distill : public Recipe {
 public:
  explicit Distill(const RunConfig& config)
      : config_(config),
        options_(spec::bind<DistillOptions>(distill_keys(), config.values)),
        text_(config),
        student_sizes_(choose_model(config, text_.vocabulary())),
        teacher_sizes_(choose_model(of_teacher(config, options_.teacher), text_.vocabulary())) {
    const auto ours = student_sizes_.values.whole("model.vocab_size");
    const auto theirs = teacher_sizes_.values.whole("model.vocab_size");
    if (ours != theirs) {
      throw base::UsageError("train.teacher = \"" + options_.teacher + "\": the teacher has " + std::to_string(theirs) +
                             " tokens, and the model " + std::to_string(ours) + "; set model.vocab_size = " +
                             std::to_string(theirs) + ", and prepare the data with the teacher's tokenizer");
    }
  }

  // The data are those of causal_lm: rows of data.sequence_length tokens.

  std::string data_source() const override { return text_.source(); }
  RunData open_data(const std::string& began_with, const agent::rank::RankEnvironment& place) override {
    return text_.open(began_with, place, student_sizes_.values.whole("model.vocab_size"));
  }
  std::shared_ptr<const BatchSource> data(Split split) const override { return text_.split(split); }

  Batch of_sizes(std::int64_t samples) const override {
    Batch batch;
    for (const char* name : {"input_ids", "targets"})
      batch.tensors[name] = at::empty({samples, config_.data.sequence_length}, at::kLong);
    batch.samples = samples;
    batch.tokens = samples * config_.data.sequence_length;
    batch.weight = static_cast<double>(batch.tokens);
    return batch;
  }

  // Two parts: one is trained; the other stays as it is, and no checkpoint holds it.

  std::vector<Part> parts() override {
    const fsdp::MetaDeviceGuard guard;
    student_ = student_sizes_.family->make_causal(student_sizes_.values);
    teacher_ = teacher_sizes_.family->make_causal(teacher_sizes_.values);
    Part student = part_of(student_sizes_, student_);
    Part teacher{.name = std::string(kTeacher), .module = teacher_, .trained = false};
    teacher.saved = [](const std::string&) { return false; };
    return {student, teacher};
  }

  std::string first_values(Parts& parts) override {
    const std::string origin = start_weights(student_sizes_, config_.train.seed, parts.trained());
    start_weights(teacher_sizes_, config_.train.seed, parts.model(kTeacher));
    return origin + ", teacher " + options_.teacher;
  }

  // The loss, as a sum over the targets of the batch.

  Losses loss(const Batch& batch) override {
    const at::Tensor& ids = batch.at("input_ids");
    const at::Tensor& targets = batch.at("targets");
    const at::Tensor counts = targets.ne(data::order::kNoTarget).unsqueeze(-1);
    at::Tensor wanted;
    {
      const at::NoGradGuard no_grad;
      wanted = softened(teacher_->forward(ids));
    }
    const at::Tensor logits = student_->forward(ids);
    const at::Tensor divergence = (wanted.exp() * (wanted - softened(logits)) * counts).sum();
    const at::Tensor of_text =
        -at::log_softmax(logits.to(at::kFloat), -1).gather(-1, targets.clamp_min(0).unsqueeze(-1)).mul(counts).sum();
    // The square keeps the gradients of both parts in proportion at any temperature.
    const double share = options_.teacher_weight, square = options_.temperature * options_.temperature;
    return {share * square * divergence + (1 - share) * of_text, {divergence.detach()}};
  }
  std::vector<std::string> step_series() const override { return {"divergence"}; }
  std::string why_no_fixed_shapes() const override { return ""; }

  void evaluate(Evaluation& evaluation) override {
    evaluation.each([&](const Batch& batch, bool counts) {
      const at::Tensor sum = student_->loss(batch.at("input_ids"), batch.at("targets"));
      if (counts) evaluation.add("validation/loss", sum.item<double>(), batch.weight);
    });
  }

  // Checkpoints name the model, and the export is a folder that transformers loads.

  void save(fsdp::Json& extra) const override {
    note_model(student_sizes_, student_sizes_.family->architectures.front(), extra);
    if (text_.folder() != nullptr) text_.folder()->note_tokenizer(extra);
  }

  fsdp::ShardedModel& exported(Parts& parts, fsdp::ExportOptions& options) override {
    describe_model(student_sizes_, student_sizes_.family->architectures.front(), options);
    if (text_.folder() != nullptr) options.copies = text_.folder()->tokenizer_files();
    return parts.trained();
  }

 private:
  at::Tensor softened(const at::Tensor& logits) const {
    return at::log_softmax(logits.to(at::kFloat) / options_.temperature, -1);
  }

  const RunConfig& config_;
  const DistillOptions options_;
  TextOfRun text_;
  const ChosenModel student_sizes_, teacher_sizes_;
  std::shared_ptr<CausalModel> student_, teacher_;
};

}  // namespace

// The recipe's row: what people may write, and what they see.

spec::Recipe distill_row() {
  return {.kind = "distill",
          .families = {&spec::llama(), &spec::gpt_neox()},
          .parts = {&spec::text_data(), &spec::prepared_data(), &distill_keys(), &spec::training(), &spec::optimizer(),
                    &spec::exports(), &spec::sharding()},
          .series = spec::with_held_out_loss({{.name = "divergence",
                                               .unit = "nats",
                                               .better = spec::Better::kLower,
                                               .over_ranks = spec::OverRanks::kRank0}})};
}

/// `config` must outlive it.
std::unique_ptr<Recipe> make_distill(const RunConfig& config) {
  return std::make_unique<Distill>(config);
}

}  // namespace worker
