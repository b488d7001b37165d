#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "fsdp/text/json.h"
#include "spec/tables/dinov2_keys.h"
#include "worker/models/layers/layers.h"

// DINOv2 (Oquab et al., "DINOv2: Learning Robust Visual Features without Supervision", arXiv 2304.07193), a vision
// transformer whose parts are multiplied by learnt scales, with registers (Darcet et al., "Vision Transformers Need
// Registers", arXiv 2309.16588) or without. Names of modules and parameters are those of Hugging Face.
namespace worker {

class Dinov2Embeddings;
class Dinov2Attention;
class Dinov2LayerScale;
class Dinov2Mlp;

/// x + scale1 * attention(norm1(x)), then x + scale2 * mlp(norm2(x)). Stochastic depth (Huang et al., 2016) leaves out
/// a part for some images of a batch in training. The sums are outside of the two parts' wrappers.
class Dinov2Layer : public Block {
 public:
  explicit Dinov2Layer(const spec::Dinov2& config);
  /// [batch, tokens, hidden] -> [batch, tokens, hidden].
  at::Tensor forward(at::Tensor x) const;

 private:
  double drop_path_;
  std::shared_ptr<LayerNorm> norm1_, norm2_;
  std::shared_ptr<Dinov2Attention> attention_;
  std::shared_ptr<Dinov2LayerScale> layer_scale1_, layer_scale2_;
  std::shared_ptr<Dinov2Mlp> mlp_;
};

/// Output that DINOv2 makes of images.
struct Dinov2Output {
  at::Tensor tokens;           ///< [batch, 1 + registers + patches, hidden], after the last norm
  std::int64_t registers = 0;  ///< how many tokens lie between the class token and the patches

  at::Tensor cls() const { return tokens.select(1, 0); }                                   ///< [batch, hidden]
  at::Tensor patches() const { return tokens.slice(/*dim=*/1, /*start=*/1 + registers); }  ///< [batch, patches, hidden]
};

/// Embeddings, blocks and final norm, without a head. The model knows nothing of sharding. Its parameters are fp32 and
/// have Hugging Face's names.
class Dinov2Model : public torch::nn::Module, public Wrapped {
 public:
  /// The parameters have no values yet. Throws std::invalid_argument naming key, value and remedy when the sizes
  /// contradict each other.
  explicit Dinov2Model(const spec::Dinov2& config);

  /// `pixels` [batch, channels, height, width] of any size from one patch on, normalised. Sizes other than the trained
  /// one interpolate the table of positions bicubically, with antialiasing in a model with registers, as transformers
  /// does. `masks` is bool [batch, patches]: the mask token stands for patches where it is true. Undefined: none.
  /// Throws c10::Error for other shapes, and for masks where the model has no mask token.
  Dinov2Output forward(const at::Tensor& pixels, const at::Tensor& masks = {}) const;

  const spec::Dinov2& config() const { return config_; }
  std::vector<std::shared_ptr<Block>> blocks() const { return {layers_.begin(), layers_.end()}; }

 private:
  spec::Dinov2 config_;
  std::shared_ptr<Dinov2Embeddings> embeddings_;
  std::vector<std::shared_ptr<Dinov2Layer>> layers_;
  std::shared_ptr<LayerNorm> layernorm_;
};

/// The file with which transformers prepares images for a model.
inline constexpr const char* kPreprocessorFile = "preprocessor_config.json";

/// A kPreprocessorFile for images as training sees them: the shorter side is made 256/224 of model.image_size, the
/// middle is cut out, and ImageNet's mean and deviation are taken away.
fsdp::Json dinov2_preprocessor(const spec::Values& values);

}  // namespace worker
