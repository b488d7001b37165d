#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "worker/models/dinov2/dinov2_model.h"
#include "worker/models/layers/layers.h"

// Heads that self-distillation puts on a DINOv2 (Oquab et al., arXiv 2304.07193). transformers has none of them. Names
// and formulas are those of facebookresearch/dinov2, dinov2/layers/dino_head.py.
namespace worker {

struct DinoHeadSizes {
  std::int64_t hidden = 2048;
  std::int64_t bottleneck = 256;
  std::int64_t prototypes = 65536;
  std::int64_t layers = 3;  ///< linear layers before the prototypes, at least 1
};

class WeightNormLinear;

/// How near tokens are to prototypes: linear layers with GELU between them, then vectors of length 1, then their
/// products with the prototypes. With weight_g = 1 these are cosines. Wrapped, because it may be a unit with a
/// precision of its own.
class DinoHead : public torch::nn::Module, public Wrapped {
 public:
  /// The parameters have no values yet. Throws std::invalid_argument for a size below 1.
  DinoHead(std::int64_t in, const DinoHeadSizes& sizes);
  /// [rows, in] -> [rows, prototypes].
  at::Tensor forward(const at::Tensor& x) const;

 private:
  std::vector<std::shared_ptr<Linear>> mlp_;
  std::shared_ptr<WeightNormLinear> last_layer_;
};

/// The modules of a student, and of its teacher: DINOv2 with the heads of the DINO and iBOT objectives.
class SelfDistilled : public torch::nn::Module, public Wrapped {
 public:
  struct Output {
    at::Tensor cls;   ///< [batch, hidden]: the backbone's class tokens, for KoLeo
    at::Tensor dino;  ///< [batch, prototypes]: the DINO head's answer to them
    at::Tensor ibot;  ///< [masked, prototypes]: the iBOT head's answer to patches; undefined without `masked`
  };

  /// Without a head of its own iBOT uses DINO's, and nothing is registered twice. Throws as Dinov2Model and DinoHead.
  SelfDistilled(const spec::Dinov2& backbone, const DinoHeadSizes& head, bool separate_ibot_head);

  /// `pixels` and `masks` as Dinov2Model::forward(). `masked`: int64 [masked], numbers of patches whose tokens the iBOT
  /// head reads, counted over the whole batch, image by image. Undefined: none. A teacher gets `masked` without masks.
  /// One call of the root: with a sharding engine all ranks must make the same calls in the same order.
  Output forward(const at::Tensor& pixels, const at::Tensor& masks = {}, const at::Tensor& masked = {}) const;

  /// The class tokens alone, [batch, hidden], as one call of the root. The heads are not called.
  at::Tensor features(const at::Tensor& pixels) const;

  std::shared_ptr<Dinov2Model> backbone;
  std::shared_ptr<DinoHead> dino_head;
  std::shared_ptr<DinoHead> ibot_head;  ///< null: dino_head serves both
};

/// True if this parameter of a SelfDistilled is one of a head. Files of a backbone lack such parameters.
bool is_of_dino_head(std::string_view parameter);

/// Draws first values for elements of a head's parameter, as DINOv2: Normal(0, 0.02) for the layers, zeros for their
/// biases, ones for weight_g, and U(-b, b) with b = 1 / sqrt(bottleneck) for weight_v.
void draw_dino_head(const DinoHeadSizes& sizes, const std::string& name, const at::Tensor& into, at::Generator& random);

}  // namespace worker
