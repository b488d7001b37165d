#include <ATen/TensorOperators.h>
#include <ATen/ops/empty.h>

#include <cmath>
#include <map>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/usage_error.h"
#include "fsdp/engine/initialize.h"
#include "spec/tables/text_recipe_keys.h"
#include "worker/adapters/low_rank.h"
#include "worker/models/causal_model.h"
#include "worker/recipes/ask_moves.h"
#include "worker/recipes/data_of_run.h"
#include "worker/recipes/registry.h"
#include "worker/train/evaluation.h"
#include "worker/train/start_weights.h"
#include "worker/train/strategy.h"

namespace worker {
namespace {

constexpr std::string_view kWeight = ".weight";
constexpr const char* kQuantized = "quantize_base";  // of a checkpoint's extra.pretrained

fsdp::FrozenFormat format_of(spec::BaseFormat format) {
  switch (format) {
    case spec::BaseFormat::kNf4:
      return fsdp::FrozenFormat::kNf4;
    case spec::BaseFormat::kInt8:
      return fsdp::FrozenFormat::kInt8;
    case spec::BaseFormat::kNone:
      break;
  }
  return fsdp::FrozenFormat::kPlain;
}

/// The word of train.quantize_base.
std::string text_of(spec::BaseFormat format) {
  return format == spec::BaseFormat::kNone ? "none" : name_of(format_of(format));
}

std::vector<std::string> layers_of(const spec::Lora& lora, const Family& family) {
  if (lora.layers.empty() && family.lora_layers.empty()) {
    throw base::UsageError("train.lora_layers is missing: the family " + std::string(family.name) +
                           " has no usual layers for adapters; name linear layers of the model");
  }
  std::istringstream words(lora.layers.empty() ? std::string(family.lora_layers) : lora.layers);
  std::vector<std::string> out;
  for (std::string word; words >> word;) out.push_back(word);
  return out;
}

/// The adapters of one part, whose own weights are frozen.
class Adapters {
 public:
  /// Adds adapters to the chosen linear layers of the part's module, freezes all other parameters, and lets checkpoints
  /// hold the adapters alone. Before the part is sharded. Throws base::UsageError naming train.lora_layers where a name
  /// fits no layer. `family` must outlive the object.
  Adapters(spec::Lora lora, const Family& family, Part& part)
      : lora_(std::move(lora)),
        shape_{.rank = lora_.rank, .alpha = lora_.alpha, .layers = layers_of(lora_, family)},
        inputs_(add_adapters(*part.module, shape_, lora_.dropout, "train.lora_layers")) {
    for (auto& item : part.module->named_parameters()) item.value().requires_grad_(is_of_adapter(item.key()));
    part.saved = is_of_adapter;
    if (lora_.base_format != spec::BaseFormat::kNone) quantise_base(part);
  }

  /// Draws first values for elements of an adapter's parameter: A uniform in [-1, 1] / sqrt(in), B zero, as PEFT does.
  void draw(const std::string& name, const at::Tensor& values, at::Generator& random) const {
    for (const auto& [layer, inputs] : inputs_) {
      if (name != adapter_a(layer)) continue;
      const double bound = 1 / std::sqrt(static_cast<double>(inputs));
      values.uniform_(-bound, bound, random);
      return;
    }
    values.zero_();
  }

  /// Describes them in a checkpoint's extra, so that they can be used without the run file.
  void note(fsdp::Json& extra) const { extra[kAdaptersOfExtra] = adapters_json(shape_); }

  /// Completes an export: the whole model with W + (alpha / rank) B A, computed in fp32, in place of W, where W has the
  /// values that the training has computed with, also those of a quantised base; or, with
  /// train.export_merged = false, the adapters alone as adapter_model.safetensors, and adapter_config.json, which names
  /// `pretrained` as the model they belong to.
  void complete(const std::string& pretrained, fsdp::ExportOptions& options) const {
    if (lora_.merged) return complete_merged(options);
    options.texts.clear();  // the files of the model itself describe it
    options.file_stem = kAdapterStem;
    options.name_of = [](const std::string& name) {
      return is_of_adapter(name) ? std::optional(std::string(kPeftPrefix) + name) : std::nullopt;
    };
    fsdp::Json config = adapters_json(shape_);
    config["peft_type"] = "LORA";
    config["task_type"] = "CAUSAL_LM";
    config["lora_dropout"] = lora_.dropout;
    config["bias"] = "none";
    config["fan_in_fan_out"] = false;
    config["inference_mode"] = true;
    config["base_model_name_or_path"] = pretrained;
    options.texts[kAdapterConfigFile] = config.dump(2) + "\n";
  }

 private:
  /// Lets the units keep the weights of layers in the format of train.quantize_base.
  void quantise_base(Part& part) const {
    const auto format = [format = format_of(lora_.base_format),
                         weights = weights_of_layers(*part.module)](const fsdp::ParameterInfo& parameter) {
      return weights.contains(parameter.name) ? format : fsdp::FrozenFormat::kPlain;
    };
    part.options = [format](const torch::nn::Module& /*unit*/, fsdp::ShardOptions of_run) {
      of_run.frozen_format = format;
      return of_run;
    };
  }

  void complete_merged(fsdp::ExportOptions& options) const {
    options.name_of = [](const std::string& name) { return is_of_adapter(name) ? std::nullopt : std::optional(name); };
    options.value_of = [scale = shape_.scale(), inputs = inputs_](const std::string& name, const at::Tensor& value,
                                                                  const auto& of_unit) {
      if (!name.ends_with(kWeight)) return value;
      const std::string layer = name.substr(0, name.size() - kWeight.size());
      if (!inputs.contains(layer)) return value;
      return value + scale * of_unit(adapter_b(layer)).matmul(of_unit(adapter_a(layer)));
    };
  }

  const spec::Lora lora_;
  const LowRank shape_;
  std::map<std::string, std::int64_t> inputs_;  // by the name of the layer
};

class CausalLm : public Recipe {
 public:
  explicit CausalLm(const RunConfig& config)
      : config_(config),
        options_(spec::bind<spec::Causal>(spec::causal(), config.values)),
        lora_(spec::bind<spec::Lora>(spec::lora(), config.values)),
        text_(config),
        chosen_(choose_model(config, text_.vocabulary())) {}

  std::string data_source() const override { return text_.source(); }
  RunData open_data(const std::string& began_with, const agent::rank::RankEnvironment& place) override {
    RunData out = text_.open(began_with, place, chosen_.values.whole("model.vocab_size"));
    if (asks_for_moves()) text_of_ = decode_text_of(text_.folder()->tokenizer_path());
    return out;
  }
  std::shared_ptr<const BatchSource> data(Split split) const override { return text_.split(split); }

  Batch of_sizes(std::int64_t samples) const override {
    const std::int64_t length = config_.data.sequence_length;
    Batch batch;
    for (const char* name : {"input_ids", "targets"}) batch.tensors[name] = at::empty({samples, length}, at::kLong);
    if (config_.data.packing == spec::Packing::kDocuments) {
      batch.tensors["position_ids"] = at::empty({samples, length}, at::kLong);
      batch.tensors["document_starts"] = at::empty({samples + 1}, at::kInt);
      batch.document_lengths.assign(static_cast<std::size_t>(samples), length);
    }
    batch.samples = samples;
    batch.tokens = samples * length;
    batch.weight = static_cast<double>(batch.tokens);
    return batch;
  }

  std::vector<Part> parts() override {
    const fsdp::MetaDeviceGuard guard;
    try {
      model_ = chosen_.family->make_causal(chosen_.values);
    } catch (const std::invalid_argument& error) {
      throw base::UsageError(error.what());
    }
    Part part = part_of(chosen_, model_);
    if (lora_.rank > 0) adapters_.emplace(lora_, *chosen_.family, part);
    return {part};
  }

  void attach(Parts& parts) override { device_ = parts.mesh().device(); }

  std::string first_values(Parts& parts) override {
    StartOptions options;
    if (adapters_) {
      base_fingerprint_ = fingerprint_of(chosen_.pretrained);
      options.is_own = is_of_adapter;
      options.draw_own = [this](const auto& name, const at::Tensor& values, at::Generator& random) {
        adapters_->draw(name, values, random);
      };
    }
    return start_weights(chosen_, config_.train.seed, parts.trained(), options);
  }

  Losses loss(const Batch& batch) override { return {model_->loss(rows_of(batch), batch.at("targets"))}; }
  std::string why_no_fixed_shapes() const override {
    if (config_.data.packing == spec::Packing::kChunks) return "";
    return "the number of packed documents differs by batch; set data.packing = \"chunks\"";
  }

  void evaluate(Evaluation& evaluation) override {
    Recipe::evaluate(evaluation);
    if (evaluation.samples() > 0)
      evaluation.set("validation/perplexity", std::exp(evaluation.value("validation/loss")));
    if (!asks_for_moves() || !text_.folder()->data().validation) return;
    MoveQuestions questions;
    questions.notation = options_.legal_moves;
    questions.samples = options_.generated_samples;
    questions.sequence_length = config_.data.sequence_length;
    questions.activations = {dtype_of(config_.train.precision), device_};
    ask_for_moves(evaluation, *model_, *text_.folder()->data().validation, text_of_, questions);
  }

  std::string why_not_measured(std::string_view series) const override {
    if (series != "validation/legal_moves" || asks_for_moves()) return {};
    return "moves are not asked for; give train.legal_moves the notation of the games, or choose another series";
  }

  void save(fsdp::Json& extra) const override {
    note_model(chosen_, chosen_.family->architectures.front(), extra);
    if (text_.folder() != nullptr) text_.folder()->note_tokenizer(extra);
    if (!adapters_) return;
    adapters_->note(extra);
    extra["pretrained"]["folder"] = chosen_.pretrained.native();
    extra["pretrained"]["fingerprint"] = base_fingerprint_;
    extra["pretrained"][kQuantized] = text_of(lora_.base_format);
  }

  /// Adapters belong to the model that they were trained with.
  void load(const fsdp::Json& extra) override {
    if (!adapters_) return;
    const fsdp::Json& then = extra.at("pretrained");
    const fsdp::Json* quantized = then.find(kQuantized);  // null before there was train.quantize_base
    const std::string began_with = quantized == nullptr ? "none" : quantized->as_string();
    if (began_with != text_of(lora_.base_format)) {
      throw base::UsageError("train.quantize_base = \"" + text_of(lora_.base_format) +
                             "\": the adapters were trained beside a base in \"" + began_with +
                             "\", whose values differ; set it to that, or use a new checkpoint.folder");
    }
    if (then.at("fingerprint").as_string() == base_fingerprint_) return;
    throw base::UsageError("model.pretrained = \"" + chosen_.pretrained.native() +
                           "\": the adapters were trained with other files (" + then.at("folder").as_string() +
                           ", then " + then.at("fingerprint").as_string() + ", now " + base_fingerprint_ +
                           "); restore them, or use a new checkpoint.folder");
  }

  fsdp::ShardedModel& exported(Parts& parts, fsdp::ExportOptions& options) override {
    describe_model(chosen_, chosen_.family->architectures.front(), options);
    if (text_.folder() != nullptr) options.copies = text_.folder()->tokenizer_files();
    if (adapters_) adapters_->complete(chosen_.pretrained.native(), options);
    return parts.trained();
  }

 private:
  static Rows rows_of(const Batch& batch) {
    if (batch.document_lengths.empty()) return {batch.at("input_ids")};
    return {batch.at("input_ids"),
            std::make_shared<const Documents>(Documents{batch.document_lengths, batch.at("document_starts")}),
            batch.at("position_ids")};
  }

  bool asks_for_moves() const { return options_.legal_moves != spec::LegalMoves::kNone; }

  const RunConfig& config_;
  const spec::Causal options_;
  const spec::Lora lora_;
  TextOfRun text_;
  const ChosenModel chosen_;
  std::shared_ptr<CausalModel> model_;
  DecodeText text_of_;  // with train.legal_moves
  at::Device device_ = at::kCPU;
  std::optional<Adapters> adapters_;
  std::string base_fingerprint_;  // of the model that the adapters belong to
};

}  // namespace

std::unique_ptr<Recipe> make_causal_lm(const RunConfig& config) {
  return std::make_unique<CausalLm>(config);
}

}  // namespace worker
