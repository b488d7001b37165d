#include <ATen/core/grad_mode.h>

#include <memory>

#include "base/usage_error.h"
#include "worker/infer/infer_model.h"
#include "worker/models/bert/bert_hf.h"
#include "worker/models/bert/bert_model.h"

namespace infer {
namespace {

spec::Bert bert_sizes(const Source& source) {
  return spec::bind<spec::Bert>(spec::bert(), source.values);
}

/// The model whose parameters a checkpoint has. Files may have more than the encoder reads.
std::shared_ptr<torch::nn::Module> bert_of(const Source& source) {
  if (source.architecture() == worker::kBertClassifier) {
    const auto labels = static_cast<std::int64_t>(worker::bert_labels(source.config).size());
    return std::make_shared<worker::BertForSequenceClassification>(bert_sizes(source), labels);
  }
  if (source.checkpoint) return std::make_shared<worker::BertForMaskedLm>(bert_sizes(source));
  return std::make_shared<worker::BertEncoder>(bert_sizes(source));
}

class LoadedBert {
 public:
  LoadedBert(const Source& source, const Options& options)
      : padding_(source.whole("pad_token_id")),
        most_positions_(source.whole("max_position_embeddings")),
        loaded_(source, options, [&] { return bert_of(source); }) {}

  template <class Model>
  Model& model() {
    return dynamic_cast<Model&>(loaded_.module());
  }
  std::int64_t most_positions() const { return most_positions_; }
  worker::PaddedRows rows(const std::vector<worker::TokenIds>& texts) const {
    const auto on_host = worker::padded(texts, padding_);
    const at::Device device = loaded_.activations().device;
    return {on_host.ids.to(device), on_host.mask.to(device)};
  }

 private:
  const std::int64_t padding_, most_positions_;
  LoadedModel loaded_;
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

}  // namespace

std::unique_ptr<Embedder> bert_embedder(const Source& source, const Options& options) {
  return std::make_unique<BertEmbedder>(source, options);
}

std::unique_ptr<Classifier> bert_classifier(const Source& source, const Options& options) {
  if (source.architecture() != worker::kBertClassifier) {
    throw base::UsageError(source.name() + " is a " + (source.architecture().empty() ? "BERT" : source.architecture()) +
                           " and has no labels; want a " + std::string(worker::kBertClassifier));
  }
  return std::make_unique<BertClassifier>(source, options);
}

}  // namespace infer
