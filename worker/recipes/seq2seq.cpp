#include <ATen/ops/empty.h>

#include <algorithm>
#include <string>
#include <vector>

#include "base/usage_error.h"
#include "fsdp/engine/initialize.h"
#include "spec/tables/t5_keys.h"
#include "spec/tables/text_data_keys.h"
#include "spec/tables/text_recipe_keys.h"
#include "worker/batch/pairs.h"
#include "worker/generate/decode.h"
#include "worker/metrics/rouge.h"
#include "worker/models/t5/t5_model.h"
#include "worker/recipes/ask_moves.h"
#include "worker/recipes/data_of_run.h"
#include "worker/recipes/registry.h"
#include "worker/train/evaluation.h"
#include "worker/train/start_weights.h"
#include "worker/train/strategy.h"

namespace worker {
namespace {

/// The sums of a feed-forward block's last layer overflow in fp16, so it computes in fp32.
fsdp::ShardOptions with_wide_sums(const torch::nn::Module& /*unit*/, fsdp::ShardOptions options) {
  const auto usual = options.precision;
  options.precision.param_dtype_of = [usual](const fsdp::ParameterInfo& parameter) {
    if (is_wide_in_t5(parameter.name)) return at::kFloat;
    return usual.param_dtype_of ? usual.param_dtype_of(parameter) : usual.param_dtype;
  };
  return options;
}

data::format::Kind kind_of(const RunConfig& config) {
  const auto objective = spec::bind<spec::Seq2Seq>(spec::seq2seq(), config.values).objective;
  return objective == spec::Objective::kPairs ? data::format::Kind::kPairs : data::format::Kind::kTokens;
}

class Seq2Seq : public FolderRecipe {
 public:
  explicit Seq2Seq(const RunConfig& config)
      : FolderRecipe(config, kind_of(config)),
        options_(spec::bind<spec::Seq2Seq>(spec::seq2seq(), config.values)),
        sizes_{spec::bind<spec::Sequence>(spec::sequence(), config.values).sequence_length, options_.target_length},
        chosen_(chosen_of(config)) {}

  RunData open_data(const std::string&, const agent::rank::RankEnvironment& place) override {
    RunData out = folder_.open(place, chosen_.values.whole("model.vocab_size"));
    train_ = source_of(folder_.data().train);
    if (folder_.data().validation) validation_ = source_of(folder_.data().validation);
    if (writes_answers()) decode_ = decode_text();
    return out;
  }

  Batch of_sizes(std::int64_t samples) const override {
    Batch batch;
    batch.tensors["input_ids"] = at::empty({samples, sizes_.input_length}, at::kLong);
    batch.tensors["attention_mask"] = at::empty({samples, sizes_.input_length}, at::kBool);
    batch.tensors["targets"] = at::empty({samples, sizes_.target_length}, at::kLong);
    batch.samples = samples;
    batch.tokens = samples * (sizes_.input_length + sizes_.target_length);
    batch.weight = static_cast<double>(samples * sizes_.target_length);
    return batch;
  }

  std::vector<Part> parts() override {
    const fsdp::MetaDeviceGuard guard;
    model_ = std::make_shared<T5ForConditionalGeneration>(spec::bind<spec::T5>(spec::t5(), chosen_.values));
    Part part = part_of(chosen_, model_);
    part.options = with_wide_sums;
    return {part};
  }

  void attach(Parts& parts) override {
    answers_ = answers_of(*model_, {dtype_of(config_.train.precision), parts.mesh().device()});
  }

  std::string first_values(Parts& parts) override {
    return start_weights(chosen_, config_.train.seed, parts.trained());
  }

  Losses loss(const Batch& batch) override {
    return {model_->loss(batch.at("input_ids"), batch.at("attention_mask"), batch.at("targets"))};
  }
  std::string why_no_fixed_shapes() const override { return "the length of texts differs by batch"; }

  void evaluate(Evaluation& evaluation) override {
    Recipe::evaluate(evaluation);
    if (writes_answers() && folder_.data().validation) compare_answers(evaluation);
  }

  std::string why_not_measured(std::string_view series) const override {
    if (!series.starts_with("validation/rouge") || writes_answers()) return {};
    return is_pairs() ? "no answers are written; set train.rouge = true, or choose another series"
                      : "cut spans are no answers to compare; choose another series";
  }

  void save(fsdp::Json& extra) const override {
    note_model(chosen_, kT5Architecture, extra);
    folder_.note_tokenizer(extra);
  }

  fsdp::ShardedModel& exported(Parts& parts, fsdp::ExportOptions& options) override {
    describe_model(chosen_, kT5Architecture, options);
    options.copies = folder_.tokenizer_files();
    return parts.trained();
  }

 private:
  /// A model that is drawn ends its answers as the data end their targets.
  ChosenModel chosen_of(const RunConfig& config) const {
    ChosenModel chosen = choose_model(config, ids());
    const auto* description = folder_.description();
    if (chosen.pretrained.empty() && description != nullptr && description->eos)
      chosen.values.set("model.eos_token_id", *description->eos);
    return chosen;
  }

  /// Ids that the model must know. T5's tokenizers end with the sentinels of cut spans; bytes get as many ids more.
  std::int64_t ids() const {
    const bool adds = !is_pairs() && folder_.description() != nullptr && folder_.tokenizer_path() == "bytes";
    return folder_.vocabulary() + (adds ? data::order::SpanOptions().sentinels : 0);
  }
  bool is_pairs() const { return options_.objective == spec::Objective::kPairs; }
  bool writes_answers() const { return is_pairs() && options_.rouge; }

  std::shared_ptr<const BatchSource> source_of(const std::shared_ptr<const data::format::Dataset>& split) const {
    if (is_pairs()) return pairs_of(split, sizes_);
    data::order::SpanOptions spans;
    spans.density = options_.span_density;
    spans.mean_length = options_.span_length;
    spans.first_sentinel = static_cast<std::uint32_t>(ids() - 1);
    return corrupted_spans(split, spans, sizes_);
  }

  DecodeText decode_text() const {
    try {
      return decode_text_of(folder_.tokenizer_path());
    } catch (const base::UsageError& error) {
      throw base::UsageError(std::string("train.rouge: ") + error.what() + "; or set train.rouge = false");
    }
  }

  /// ROUGE of the model's own answers to the first validation inputs.
  void compare_answers(Evaluation& evaluation) {
    const fsdp::DeviceMesh& mesh = evaluation.mesh();
    PromptOptions options;
    options.samples = options_.generated_samples;
    options.most = sizes_.input_length;
    const auto prompts = prompts_of(*folder_.data().validation, mesh.rank(), mesh.world_size(), options);
    Sampling sampling;
    sampling.max_new_tokens = sizes_.target_length;
    if (const auto eos = folder_.description()->eos) sampling.ends = {*eos};
    const AllDone all_done = [&](bool mine) { return evaluation.mesh().control().all_reduce(mine ? 0.0 : 1.0) == 0; };
    const auto most = static_cast<std::size_t>(config_.train.micro_batch_size > 0 ? config_.train.micro_batch_size : 8);
    for (std::size_t begin = 0; begin < prompts.size(); begin += most) {
      const std::size_t end = std::min(begin + most, prompts.size());
      std::vector<TokenIds> inputs;
      for (std::size_t i = begin; i < end; ++i) inputs.push_back(prompts[i].ids);
      const auto answers = generate(*answers_, inputs, sampling, all_done);
      for (std::size_t i = begin; i < end; ++i) {
        if (prompts[i].counts) add_rouge(evaluation, prompts[i].rest, answers[i - begin]);
      }
    }
  }

  void add_rouge(Evaluation& evaluation, const TokenIds& target, const TokenIds& answer) const {
    const RougeScores scores = rouge(decode_(target), decode_(answer));
    evaluation.add("validation/rouge1", scores.one.f1, 1);
    evaluation.add("validation/rouge2", scores.two.f1, 1);
    evaluation.add("validation/rougeL", scores.l.f1, 1);
    evaluation.add("validation/rougeLsum", scores.l_sum.f1, 1);
  }

  const spec::Seq2Seq options_;
  const PairOptions sizes_;
  const ChosenModel chosen_;
  DecodeText decode_;
  std::shared_ptr<T5ForConditionalGeneration> model_;
  std::unique_ptr<EncoderDecoder> answers_;
};

}  // namespace

std::unique_ptr<Recipe> make_seq2seq(const RunConfig& config) {
  return std::make_unique<Seq2Seq>(config);
}

}  // namespace worker
