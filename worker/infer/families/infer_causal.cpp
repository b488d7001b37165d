#include <ATen/core/grad_mode.h>

#include <utility>

#include "worker/infer/infer_model.h"
#include "worker/models/causal_model.h"

// Decoders: Llama and GPT-NeoX.
namespace infer {
namespace {

class LoadedDecoder {
 public:
  LoadedDecoder(const Source& source, const Options& options)
      : most_positions_(source.whole("max_position_embeddings")),
        loaded_(source, options, [&] { return source.family->make_causal(source.values); }) {}

  worker::CausalModel& model() { return dynamic_cast<worker::CausalModel&>(loaded_.module()); }
  const worker::Activations& activations() const { return loaded_.activations(); }
  std::int64_t most_positions() const { return most_positions_; }

 private:
  const std::int64_t most_positions_;
  LoadedModel loaded_;
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

}  // namespace

std::unique_ptr<Generator> causal_generator(const Source& source, const Options& options) {
  return std::make_unique<CausalGenerator>(source, options);
}

std::unique_ptr<Embedder> causal_embedder(const Source& source, const Options& options) {
  return std::make_unique<CausalEmbedder>(source, options);
}

}  // namespace infer
