#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "worker/generate/decode.h"
#include "worker/infer/options.h"
#include "worker/infer/source.h"

namespace infer {

/// A model that writes text.
class Generator {
 public:
  virtual ~Generator() = default;
  /// True: a text is read by an encoder and answered. False: it is continued.
  virtual bool answers() const = 0;
  /// The most tokens of a prompt and its continuation together; 0: no limit.
  virtual std::int64_t most_positions() const = 0;
  virtual std::vector<worker::TokenIds> generate(const std::vector<worker::TokenIds>& prompts,
                                                 const worker::Sampling& sampling, const worker::OnToken& on_token) = 0;
};

/// How the vectors of a text's tokens become one.
enum class Pool { kCls, kMean, kLast };

/// A model that makes vectors of text.
class Embedder {
 public:
  virtual ~Embedder() = default;
  virtual Pool usual_pool() const = 0;
  virtual std::int64_t most_positions() const = 0;
  /// [texts, hidden] in fp32 on the CPU. Gradients are off.
  virtual at::Tensor embed(const std::vector<worker::TokenIds>& texts, Pool pool) = 0;
};

/// A model that makes vectors of images.
class ImageEmbedder {
 public:
  virtual ~ImageEmbedder() = default;
  virtual Pool usual_pool() const = 0;
  /// `pixels` is fp32 [images, 3, side, side] on the CPU, normalised; see pixels_of(). Returns [images,
  /// hidden] in fp32 on the CPU. Gradients are off.
  virtual at::Tensor embed(const at::Tensor& pixels, Pool pool) = 0;
};

/// A model that sorts texts into classes.
class Classifier {
 public:
  virtual ~Classifier() = default;
  virtual const std::vector<std::string>& labels() const = 0;
  virtual std::int64_t most_positions() const = 0;
  /// Logits [texts, labels] in fp32 on the CPU. Gradients are off.
  virtual at::Tensor logits(const std::vector<worker::TokenIds>& texts) = 0;
};

/// What a family of models can be used for. Null: it has no such use. The functions load the weights of the source;
/// they throw as LoadedModel's constructor.
struct Uses {
  std::unique_ptr<Generator> (*generator)(const Source&, const Options&) = nullptr;
  std::unique_ptr<Embedder> (*embedder)(const Source&, const Options&) = nullptr;
  std::unique_ptr<Classifier> (*classifier)(const Source&, const Options&) = nullptr;
  std::unique_ptr<ImageEmbedder> (*image_embedder)(const Source&, const Options&) = nullptr;
};

/// Every decoder writes text and makes vectors of text. Another family's uses are a file in worker/infer/families and a
/// row in model.cpp.
Uses uses_of(const worker::Family& family);

/// The models of a source. Throw base::UsageError that lists the families with that use.
std::unique_ptr<Generator> open_generator(const Source& source, const Options& options);
std::unique_ptr<Embedder> open_embedder(const Source& source, const Options& options);
std::unique_ptr<Classifier> open_classifier(const Source& source, const Options& options);
/// Whether the family makes vectors of images.
bool embeds_images(const Source& source);
/// Of such a family. Throws base::UsageError for a pool that images do not have.
std::unique_ptr<ImageEmbedder> open_image_embedder(const Source& source, const Options& options);

/// The vectors of tokens, [texts, positions, hidden], as one of each text, [texts, hidden] in fp32. `mask` is bool
/// [texts, positions], true where a token counts. Sums are in fp32.
at::Tensor pooled(const at::Tensor& states, const at::Tensor& mask, Pool pool);

// worker/infer/families
std::unique_ptr<Generator> causal_generator(const Source& source, const Options& options);
std::unique_ptr<Embedder> causal_embedder(const Source& source, const Options& options);
std::unique_ptr<Generator> t5_generator(const Source& source, const Options& options);
std::unique_ptr<Embedder> bert_embedder(const Source& source, const Options& options);
std::unique_ptr<Classifier> bert_classifier(const Source& source, const Options& options);
std::unique_ptr<ImageEmbedder> dinov2_embedder(const Source& source, const Options& options);

}  // namespace infer
