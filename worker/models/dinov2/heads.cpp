#include "worker/models/dinov2/heads.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/linalg_vector_norm.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <stdexcept>
#include <utility>

#include "worker/models/ops.h"

namespace worker {
namespace {

void check_dino_head(std::int64_t in, const DinoHeadSizes& sizes) {
  const std::pair<const char*, std::int64_t> all[] = {{"the width of what it reads", in},
                                                      {"its hidden size", sizes.hidden},
                                                      {"its bottleneck", sizes.bottleneck},
                                                      {"its number of prototypes", sizes.prototypes},
                                                      {"its number of layers", sizes.layers}};
  for (const auto& [what, value] : all) {
    if (value >= 1) continue;
    throw std::invalid_argument(std::string("the head of self-distillation: ") + what + " is " + std::to_string(value) +
                                "; want at least 1");
  }
}

/// Vectors of length 1 along the last dim.
at::Tensor of_length_one(const at::Tensor& x) {
  const double least = x.scalar_type() == at::kHalf ? 1e-6 : 1e-12;
  return x / at::linalg_vector_norm(x, 2, {-1}, /*keepdim=*/true).clamp_min(least);
}

}  // namespace

/// A linear layer without bias whose rows are weight_g * weight_v / |weight_v| (Salimans and Kingma, "Weight
/// Normalization", 2016). Both are trained.
class WeightNormLinear : public torch::nn::Module {
 public:
  WeightNormLinear(std::int64_t in, std::int64_t out)
      : weight_g_(register_parameter("weight_g", uninitialised({out, 1}))),
        weight_v_(register_parameter("weight_v", uninitialised({out, in}))) {}

  /// [.., in] -> [.., out].
  at::Tensor forward(const at::Tensor& x) const {
    const at::Tensor length = at::linalg_vector_norm(weight_v_, 2, {1}, /*keepdim=*/true);
    return worker::linear(x, weight_v_ * (weight_g_ / length));
  }

 private:
  at::Tensor weight_g_, weight_v_;  ///< [out, 1], [out, in]
};

DinoHead::DinoHead(std::int64_t in, const DinoHeadSizes& sizes) {
  check_dino_head(in, sizes);
  // The names count the nonlinear functions between the layers, too.
  const auto list = add_group(*this, "mlp");
  for (std::int64_t i = 0; i < sizes.layers; ++i) {
    const bool is_last = i + 1 == sizes.layers;
    mlp_.push_back(add_child<Linear>(*list, std::to_string(2 * i), i == 0 ? in : sizes.hidden,
                                     is_last ? sizes.bottleneck : sizes.hidden, true));
  }
  last_layer_ = add_child<WeightNormLinear>(*this, "last_layer", sizes.bottleneck, sizes.prototypes);
}

at::Tensor DinoHead::forward(const at::Tensor& tokens) const {
  return call(wrapper, tokens, [this](const at::Tensor& in) {
    // A unit may compute in another precision than the backbone.
    at::Tensor x = mlp_.front()->forward(in.to(mlp_.front()->weight.scalar_type()));
    for (std::size_t i = 1; i < mlp_.size(); ++i) x = mlp_[i]->forward(activate(Activation::kGelu, x));
    return last_layer_->forward(of_length_one(x));
  });
}

SelfDistilled::SelfDistilled(const spec::Dinov2& of_backbone, const DinoHeadSizes& head, bool separate_ibot_head)
    : backbone(add_child<Dinov2Model>(*this, "backbone", of_backbone)),
      dino_head(add_child<DinoHead>(*this, "dino_head", of_backbone.hidden_size, head)) {
  if (separate_ibot_head) ibot_head = add_child<DinoHead>(*this, "ibot_head", of_backbone.hidden_size, head);
}

SelfDistilled::Output SelfDistilled::forward(const at::Tensor& pixels, const at::Tensor& masks,
                                             const at::Tensor& masked) const {
  // Masks and numbers are captured, because they need no gradient.
  const Tensors out = wrapper({pixels}, [this, masks, masked](Tensors inputs) -> Tensors {
    const Dinov2Output seen = backbone->forward(inputs[0], masks);
    const at::Tensor cls = seen.cls();
    if (!masked.defined()) return {cls, dino_head->forward(cls)};
    const at::Tensor patches = seen.patches().flatten(0, 1).index_select(0, masked);
    if (ibot_head) return {cls, dino_head->forward(cls), ibot_head->forward(patches)};
    // One call of the head: a unit then gathers its parameters once.
    const at::Tensor both = dino_head->forward(at::cat({cls, patches}));
    return {cls, both.narrow(0, 0, cls.size(0)), both.slice(0, cls.size(0))};
  });
  return {out[0], out[1], masked.defined() ? out[2] : at::Tensor()};
}

at::Tensor SelfDistilled::features(const at::Tensor& pixels) const {
  return call(wrapper, pixels, [this](const at::Tensor& in) { return backbone->forward(in).cls(); });
}

bool is_of_dino_head(std::string_view parameter) {
  return parameter.starts_with("dino_head.") || parameter.starts_with("ibot_head.");
}

void draw_dino_head(const DinoHeadSizes& sizes, const std::string& name, const at::Tensor& into,
                    at::Generator& random) {
  if (name.ends_with(".weight_g")) {
    into.fill_(1.0);
  } else if (name.ends_with(".weight_v")) {
    const double most = 1 / std::sqrt(static_cast<double>(sizes.bottleneck));
    into.uniform_(-most, most, random);
  } else {
    draw_normal(name, into, 0.02, random);
  }
}

}  // namespace worker
