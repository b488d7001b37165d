#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "fsdp/comm/device_mesh.h"
#include "fsdp/engine/fully_shard.h"
#include "worker/generate/decode.h"
#include "worker/infer/infer_options.h"
#include "worker/infer/model_source.h"

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

/// Uses that a family of models can have. Null: the family has no such use. The functions load the weights of the
/// source; they throw as LoadedModel's constructor.
struct Uses {
  std::unique_ptr<Generator> (*generator)(const Source&, const Options&) = nullptr;
  std::unique_ptr<Embedder> (*embedder)(const Source&, const Options&) = nullptr;
  std::unique_ptr<Classifier> (*classifier)(const Source&, const Options&) = nullptr;
  std::unique_ptr<ImageEmbedder> (*image_embedder)(const Source&, const Options&) = nullptr;
};

/// Every decoder writes text and makes vectors of text. Another family's uses are a row in infer_families.cpp.
Uses uses_of(const worker::Family& family);

/// The models of a source. Throw base::UsageError that lists the families with that use.
std::unique_ptr<Generator> open_generator(const Source& source, const Options& options);
std::unique_ptr<Embedder> open_embedder(const Source& source, const Options& options);
std::unique_ptr<Classifier> open_classifier(const Source& source, const Options& options);
/// True if the family makes vectors of images.
bool embeds_images(const Source& source);
/// Opens a model of such a family. Throws base::UsageError for a pool that images do not have.
std::unique_ptr<ImageEmbedder> open_image_embedder(const Source& source, const Options& options);

/// The vectors of tokens, [texts, positions, hidden], as one of each text, [texts, hidden] in fp32. `mask` is bool
/// [texts, positions], true where a token counts. Sums are in fp32.
at::Tensor pooled(const at::Tensor& states, const at::Tensor& mask, Pool pool);

/// The dtype and the device of the options. Throws base::UsageError for a GPU that this program cannot use.
worker::Activations activations_of(const Options& options);

/// A module of one process with the weights of a source. The weights exist once, in the dtype of the options, and
/// nothing records gradients.
class LoadedModel {
 public:
  /// Adapters of the source are added to the module, and its other weights are those of the model that they belong to.
  /// A checkpoint that keeps the average of its weights (Optimizer::keep_average) gives that, as evaluations and
  /// exports of the training do.
  ///
  /// `make` builds the module; its parameters then lie on the meta device. The module must be worker::Wrapped, because
  /// its calls go through its wrapper from now on.
  ///
  /// Files may hold heads that the module does not have: what FileNames::may_lack allows to be missing. `in_fp32` says
  /// which parameters are kept in fp32 whatever the options say; null: none. `some_parameters`: a checkpoint may have
  /// more parameters than the module.
  ///
  /// Throws base::UsageError that names each tensor that is missing, has another shape or dtype, or belongs to no
  /// parameter, and for a checkpoint that cannot be read.
  LoadedModel(const Source& source, const Options& options,
              const std::function<std::shared_ptr<torch::nn::Module>()>& make,
              const std::function<bool(const std::string& parameter)>& in_fp32 = {}, bool some_parameters = false);

  torch::nn::Module& module() { return *module_; }
  const worker::Activations& activations() const { return activations_; }

 private:
  void load_model_files(const Source& source, const std::filesystem::path& folder);
  void load_base(const Source& source);
  void load_adapter_file(const Source& source);
  void load_checkpoint(const Source& source, const Options& options, bool some_parameters);

  worker::Activations activations_;
  fsdp::DeviceMesh mesh_;
  std::shared_ptr<torch::nn::Module> module_;
  std::unique_ptr<fsdp::ShardedModel> sharded_;
};

}  // namespace infer
