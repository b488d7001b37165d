#include <ATen/core/grad_mode.h>

#include <algorithm>
#include <array>
#include <memory>
#include <string_view>

#include "base/usage_error.h"
#include "worker/infer/infer_model.h"
#include "worker/models/bert/bert_model.h"
#include "worker/models/causal_model.h"
#include "worker/models/dinov2/dinov2_model.h"
#include "worker/models/family.h"
#include "worker/models/t5/t5_model.h"

// The uses of each family of models, and the models for them.
namespace infer {
namespace {

// Decoders, which all have the same uses.

class LoadedDecoder : public LoadedModel {
 public:
  LoadedDecoder(const Source& source, const Options& options)
      : LoadedModel(source, options, [&] { return source.family->make_causal(source.values); }),
        most_positions_(source.whole("max_position_embeddings")) {}

  worker::CausalModel& model() { return dynamic_cast<worker::CausalModel&>(module()); }
  std::int64_t most_positions() const { return most_positions_; }

 private:
  const std::int64_t most_positions_;
};

class CausalGenerator : public Generator {
 public:
  CausalGenerator(const Source& source, const Options& options) : decoder_(source, options) {}

  bool answers() const override { return false; }
  std::int64_t most_positions() const override { return decoder_.most_positions(); }
  std::vector<worker::TokenIds> generate(const std::vector<worker::TokenIds>& prompts, const worker::Sampling& sampling,
                                         const worker::OnToken& on_token) override {
    return worker::generate(decoder_.model(), prompts, sampling, decoder_.activations(), worker::done_alone, on_token);
  }

 private:
  LoadedDecoder decoder_;
};

class CausalEmbedder : public Embedder {
 public:
  CausalEmbedder(const Source& source, const Options& options) : decoder_(source, options) {}

  Pool usual_pool() const override { return Pool::kMean; }
  std::int64_t most_positions() const override { return decoder_.most_positions(); }
  at::Tensor embed(const std::vector<worker::TokenIds>& texts, Pool pool) override {
    const at::NoGradGuard no_grad;
    // A token sees none behind it, so what fills a row changes nothing.
    const auto rows = worker::padded(texts, /*padding=*/0);
    const at::Device device = decoder_.activations().device;
    return pooled(decoder_.model().hidden_states(rows.ids.to(device)), rows.mask.to(device), pool).to(at::kCPU);
  }

 private:
  LoadedDecoder decoder_;
};

// T5.

class T5Generator : public Generator {
 public:
  T5Generator(const Source& source, const Options& options)
      : loaded_(
            source, options,
            [&] {
              return std::make_shared<worker::T5ForConditionalGeneration>(
                  spec::bind<spec::T5>(spec::t5(), source.values));
            },
            worker::is_wide_in_t5),
        answers_(worker::answers_of(dynamic_cast<worker::T5ForConditionalGeneration&>(loaded_.module()),
                                    loaded_.activations())) {}

  bool answers() const override { return true; }
  std::int64_t most_positions() const override { return 0; }
  std::vector<worker::TokenIds> generate(const std::vector<worker::TokenIds>& prompts, const worker::Sampling& sampling,
                                         const worker::OnToken& on_token) override {
    return worker::generate(*answers_, prompts, sampling, worker::done_alone, on_token);
  }

 private:
  LoadedModel loaded_;
  std::unique_ptr<worker::EncoderDecoder> answers_;
};

// BERT.

/// The model whose parameters a checkpoint has. Files may have more than the encoder reads.
std::shared_ptr<torch::nn::Module> bert_of(const Source& source) {
  const auto sizes = spec::bind<spec::Bert>(spec::bert(), source.values);
  if (source.architecture() == worker::kBertClassifier) {
    const auto labels = static_cast<std::int64_t>(worker::bert_labels(source.config).size());
    return std::make_shared<worker::BertForSequenceClassification>(sizes, labels);
  }
  if (source.checkpoint) return std::make_shared<worker::BertForMaskedLm>(sizes);
  return std::make_shared<worker::BertEncoder>(sizes);
}

class LoadedBert : public LoadedModel {
 public:
  LoadedBert(const Source& source, const Options& options)
      : LoadedModel(source, options, [&] { return bert_of(source); }),
        padding_(source.whole("pad_token_id")),
        most_positions_(source.whole("max_position_embeddings")) {}

  template <class Model>
  Model& model() {
    return dynamic_cast<Model&>(module());
  }
  std::int64_t most_positions() const { return most_positions_; }
  worker::PaddedRows rows(const std::vector<worker::TokenIds>& texts) const {
    const auto on_host = worker::padded(texts, padding_);
    const at::Device device = activations().device;
    return {on_host.ids.to(device), on_host.mask.to(device)};
  }

 private:
  const std::int64_t padding_, most_positions_;
};

class BertEmbedder : public Embedder {
 public:
  BertEmbedder(const Source& source, const Options& options) : bert_(source, options) {}

  Pool usual_pool() const override { return Pool::kCls; }
  std::int64_t most_positions() const override { return bert_.most_positions(); }
  at::Tensor embed(const std::vector<worker::TokenIds>& texts, Pool pool) override {
    const at::NoGradGuard no_grad;
    const auto rows = bert_.rows(texts);
    const at::Tensor states = bert_.model<worker::BertEncoder>().hidden({rows.ids, rows.mask});
    return pooled(states, rows.mask, pool).to(at::kCPU);
  }

 private:
  LoadedBert bert_;
};

class BertClassifier : public Classifier {
 public:
  BertClassifier(const Source& source, const Options& options)
      : labels_(worker::bert_labels(source.config)), bert_(source, options) {}

  const std::vector<std::string>& labels() const override { return labels_; }
  std::int64_t most_positions() const override { return bert_.most_positions(); }
  at::Tensor logits(const std::vector<worker::TokenIds>& texts) override {
    const at::NoGradGuard no_grad;
    const auto rows = bert_.rows(texts);
    return bert_.model<worker::BertForSequenceClassification>().forward({rows.ids, rows.mask}).to(at::kCPU, at::kFloat);
  }

 private:
  const std::vector<std::string> labels_;
  LoadedBert bert_;
};

std::unique_ptr<Classifier> bert_classifier(const Source& source, const Options& options) {
  if (source.architecture() != worker::kBertClassifier) {
    throw base::UsageError(source.name() + " is a " + (source.architecture().empty() ? "BERT" : source.architecture()) +
                           " and has no labels; want a " + std::string(worker::kBertClassifier));
  }
  return std::make_unique<BertClassifier>(source, options);
}

// DINOv2.

/// A checkpoint's part with the model's weights, and where they are in it.
constexpr const char *kTeacher = "teacher", *kBackbone = "backbone";

/// The backbone under the name that it has in checkpoints, beside heads that are not loaded.
class InCheckpoint : public torch::nn::Module, public worker::Wrapped {
 public:
  explicit InCheckpoint(const spec::Dinov2& sizes)
      : backbone_(register_module(kBackbone, std::make_shared<worker::Dinov2Model>(sizes))) {}
  worker::Dinov2Output forward(const at::Tensor& pixels) const {
    worker::Dinov2Output out;
    out.registers = backbone_->config().num_register_tokens;
    out.tokens = worker::call(wrapper, pixels, [this](const at::Tensor& in) { return backbone_->forward(in).tokens; });
    return out;
  }

 private:
  std::shared_ptr<worker::Dinov2Model> backbone_;
};

std::shared_ptr<torch::nn::Module> module_of(const Source& source) {
  const auto sizes = spec::bind<spec::Dinov2>(spec::dinov2(), source.values);
  if (source.checkpoint) return std::make_shared<InCheckpoint>(sizes);
  return std::make_shared<worker::Dinov2Model>(sizes);
}

class Dinov2Embedder : public ImageEmbedder {
 public:
  Dinov2Embedder(const Source& source, const Options& options)
      : loaded_(
            source, options, [&] { return module_of(source); }, {}, /*some_parameters=*/true) {}

  Pool usual_pool() const override { return Pool::kCls; }
  at::Tensor embed(const at::Tensor& pixels, Pool pool) override {
    const at::NoGradGuard no_grad;
    const auto& to = loaded_.activations();
    const auto out = output(pixels.to(to.device, to.dtype));
    const at::Tensor vectors = pool == Pool::kCls ? out.cls() : out.patches().to(at::kFloat).mean(1);
    return vectors.to(at::kCPU, at::kFloat);
  }

 private:
  worker::Dinov2Output output(const at::Tensor& pixels) {
    if (auto* whole = dynamic_cast<InCheckpoint*>(&loaded_.module())) return whole->forward(pixels);
    return dynamic_cast<worker::Dinov2Model&>(loaded_.module()).forward(pixels);
  }
  LoadedModel loaded_;
};

std::unique_ptr<ImageEmbedder> dinov2_embedder(const Source& source, const Options& options) {
  if (options.pool == "last")
    throw base::UsageError("--pool last: the patches of an image have no last one; want cls or mean");
  Options own = options;
  if (own.part == kUsualPart) own.part = kTeacher;
  return std::make_unique<Dinov2Embedder>(source, own);
}

template <class Made, class Model>
std::unique_ptr<Made> make(const Source& source, const Options& options) {
  return std::make_unique<Model>(source, options);
}

/// Uses of families that are no decoders.
struct OtherUses {
  std::string_view family;
  Uses uses;
};
constexpr auto kOtherUses = std::to_array<OtherUses>({
    {"t5", {.generator = make<Generator, T5Generator>}},
    {"bert", {.embedder = make<Embedder, BertEmbedder>, .classifier = bert_classifier}},
    {"dinov2", {.image_embedder = dinov2_embedder}},
});

template <class Made>
using Open = std::unique_ptr<Made> (*)(const Source&, const Options&);

template <class Made>
std::unique_ptr<Made> open(const Source& source, const Options& options, Open<Made> Uses::*use, const char* what) {
  if (const Uses uses = uses_of(*source.family); uses.*use != nullptr) return (uses.*use)(source, options);
  std::string list;
  for (const auto* family : worker::families()) {
    if (uses_of(*family).*use != nullptr) list += (list.empty() ? "" : ", ") + std::string(family->name);
  }
  throw base::UsageError(source.name() + ": a model of the family " + std::string(source.family->name) + what +
                         "; want one of: " + (list.empty() ? "(none)" : list));
}

}  // namespace

Uses uses_of(const worker::Family& family) {
  if (family.make_causal != nullptr)
    return {.generator = make<Generator, CausalGenerator>, .embedder = make<Embedder, CausalEmbedder>};
  const auto row = std::ranges::find(kOtherUses, family.name, &OtherUses::family);
  return row == kOtherUses.end() ? Uses() : row->uses;
}

std::unique_ptr<Generator> open_generator(const Source& source, const Options& options) {
  return open(source, options, &Uses::generator, " writes no text");
}

std::unique_ptr<Embedder> open_embedder(const Source& source, const Options& options) {
  return open(source, options, &Uses::embedder, " gives no vectors here");
}

std::unique_ptr<Classifier> open_classifier(const Source& source, const Options& options) {
  return open(source, options, &Uses::classifier, " has no labels");
}

bool embeds_images(const Source& source) {
  return uses_of(*source.family).image_embedder != nullptr;
}

std::unique_ptr<ImageEmbedder> open_image_embedder(const Source& source, const Options& options) {
  return open(source, options, &Uses::image_embedder, " makes no vectors of images");
}

}  // namespace infer
