#include <ATen/ops/cross_entropy_loss.h>
#include <ATen/ops/empty.h>

#include "fsdp/engine/initialize.h"
#include "spec/tables/bert_keys.h"
#include "spec/tables/text_data_keys.h"
#include "spec/tables/text_recipe_keys.h"
#include "worker/batch/encoder_texts.h"
#include "worker/models/bert/bert_model.h"
#include "worker/models/config_json.h"
#include "worker/recipes/data_of_run.h"
#include "worker/recipes/registry.h"
#include "worker/train/evaluation.h"
#include "worker/train/start_weights.h"

namespace worker {
namespace {

class MaskedLm : public FolderRecipe {
 public:
  explicit MaskedLm(const RunConfig& config)
      : FolderRecipe(config, data::format::Kind::kTokens),
        options_(spec::bind<spec::MaskedLm>(spec::masked_lm(), config.values)),
        length_(spec::bind<spec::Sequence>(spec::sequence(), config.values).sequence_length),
        chosen_(choose_model(config, ids())) {}

  RunData open_data(const std::string&, const agent::rank::RankEnvironment& place) override {
    RunData out = folder_.open(place, chosen_.values.whole("model.vocab_size"));
    MaskedOptions options;
    options.length = length_;
    options.share = options_.mask_share;
    // A tokenizer without a mask token gets the first id after its own.
    if (!folder_.description()->mask) options.mask = static_cast<std::uint32_t>(folder_.vocabulary());
    train_ = masked_texts(folder_.data().train, options);
    if (folder_.data().validation) validation_ = masked_texts(folder_.data().validation, options);
    return out;
  }

  Batch of_sizes(std::int64_t samples) const override {
    const auto masked = static_cast<std::int64_t>(static_cast<double>(samples * length_) * options_.mask_share) + 1;
    Batch batch;
    for (const char* name : {"input_ids", "token_type_ids", "targets"})
      batch.tensors[name] = at::empty({samples, length_}, at::kLong);
    batch.tensors["attention_mask"] = at::empty({samples, length_}, at::kBool);
    batch.tensors["masked"] = at::empty({masked}, at::kLong);
    batch.samples = samples;
    batch.tokens = samples * length_;
    batch.weight = static_cast<double>(masked);
    return batch;
  }

  std::vector<Part> parts() override {
    const fsdp::MetaDeviceGuard guard;
    model_ = std::make_shared<BertForMaskedLm>(spec::bind<spec::Bert>(spec::bert(), chosen_.values));
    return {part_of(chosen_, model_)};
  }

  std::string first_values(Parts& parts) override {
    return start_weights(chosen_, config_.train.seed, parts.trained());
  }

  Losses loss(const Batch& batch) override { return {model_->loss(rows_of(batch), targets_of(batch))}; }
  std::string why_no_fixed_shapes() const override { return "the number of masked tokens differs by batch"; }

  void evaluate(Evaluation& evaluation) override {
    evaluation.each([&](const Batch& batch, bool counts) {
      const MaskedTargets targets = targets_of(batch);
      const at::Tensor logits = model_->forward(rows_of(batch), targets.positions).to(at::kFloat);
      if (!counts || targets.ids.numel() == 0) return;
      const at::Tensor sum = at::cross_entropy_loss(logits, targets.ids, {}, at::Reduction::Sum);
      evaluation.add("validation/loss", sum.item<double>(), batch.weight);
      evaluation.add("validation/accuracy", logits.argmax(-1).eq(targets.ids).sum().item<double>(), batch.weight);
    });
  }

  void save(fsdp::Json& extra) const override {
    note_model(chosen_, kBertForMaskedLm, extra);
    folder_.note_tokenizer(extra);
  }

  fsdp::ShardedModel& exported(Parts& parts, fsdp::ExportOptions& options) override {
    options.texts[kModelConfigFile] = config_text(chosen_, kBertForMaskedLm, *options.dtype);
    options.copies = folder_.tokenizer_files();
    if (!chosen_.values.flag("model.tie_word_embeddings")) options.more_names_of = second_bert_names;
    return parts.trained();
  }

 private:
  /// Ids that the model must know: those of the data, and the one of the mask.
  std::int64_t ids() const {
    const auto* description = folder_.description();
    return folder_.vocabulary() + (description != nullptr && !description->mask ? 1 : 0);
  }

  static BertRows rows_of(const Batch& batch) {
    return {batch.at("input_ids"), batch.at("attention_mask"), batch.at("token_type_ids")};
  }

  static MaskedTargets targets_of(const Batch& batch) {
    const at::Tensor& masked = batch.at("masked");
    return {masked, batch.at("targets").flatten().index_select(0, masked)};
  }

  const spec::MaskedLm options_;
  const std::int64_t length_;
  const ChosenModel chosen_;
  std::shared_ptr<BertForMaskedLm> model_;
};

}  // namespace

std::unique_ptr<Recipe> make_masked_lm(const RunConfig& config) {
  return std::make_unique<MaskedLm>(config);
}

}  // namespace worker
