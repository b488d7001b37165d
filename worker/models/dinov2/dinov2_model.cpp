#include "worker/models/dinov2/dinov2_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "worker/models/config_members.h"
#include "worker/models/fused_ops.h"
#include "worker/models/layers/attention.h"
#include "worker/models/layers/layers.h"
#include "worker/models/ops.h"

namespace worker {
namespace {

/// Throws std::invalid_argument when the sizes contradict each other.
void check_dinov2(const spec::Dinov2& model) {
  check_sizes({{"hidden_size", model.hidden_size},
               {"num_hidden_layers", model.num_hidden_layers},
               {"num_attention_heads", model.num_attention_heads},
               {"image_size", model.image_size},
               {"patch_size", model.patch_size},
               {"num_channels", model.num_channels}});
  check_no_conflict(spec::conflicts_of(model));
}

/// Stochastic depth: sets the rows of some images to zero and divides the others by the share that is kept.
at::Tensor drop_path(const at::Tensor& x, double p, bool training) {
  if (!training || p == 0) return x;
  return x * at::empty({x.size(0), 1, 1}, x.options()).bernoulli_(1 - p).div_(1 - p);
}

}  // namespace

Dinov2Projection::Dinov2Projection(const spec::Dinov2& c)
    : weight(register_parameter("weight", uninitialised({c.hidden_size, c.num_channels, c.patch_size, c.patch_size}))),
      bias(register_parameter("bias", uninitialised({c.hidden_size}))),
      patch_size_(c.patch_size) {}

at::Tensor Dinov2Projection::forward(const at::Tensor& pixels) const {
  const std::int64_t batch = pixels.size(0), channels = pixels.size(1), p = patch_size_;
  const std::int64_t rows = pixels.size(2) / p, columns = pixels.size(3) / p;
  const at::Tensor patches = pixels.narrow(2, 0, rows * p)
                                 .narrow(3, 0, columns * p)
                                 .reshape({batch, channels, rows, p, columns, p})
                                 .permute({0, 2, 4, 1, 3, 5})
                                 .reshape({batch, rows * columns, channels * p * p});
  return worker::linear(patches.to(weight.scalar_type()), weight.flatten(1), bias);
}

Dinov2Embeddings::Dinov2Embeddings(const spec::Dinov2& c)
    : cls_token(register_parameter("cls_token", uninitialised({1, 1, c.hidden_size}))), config_(c) {
  if (c.use_mask_token) mask_token = register_parameter("mask_token", uninitialised({1, c.hidden_size}));
  if (c.num_register_tokens > 0) {
    register_tokens = register_parameter("register_tokens", uninitialised({1, c.num_register_tokens, c.hidden_size}));
  }
  position_embeddings =
      register_parameter("position_embeddings", uninitialised({1, 1 + c.grid() * c.grid(), c.hidden_size}));
  const auto patch_embeddings = register_module("patch_embeddings", std::make_shared<torch::nn::Module>());
  projection_ = patch_embeddings->register_module("projection", std::make_shared<Dinov2Projection>(c));
}

at::Tensor Dinov2Embeddings::positions(std::int64_t height, std::int64_t width) const {
  const std::int64_t grid = config_.grid(), rows = height / config_.patch_size, columns = width / config_.patch_size;
  // transformers interpolates to the same size, too, where the image is no square but has as many patches.
  if (rows * columns == grid * grid && height == width) return position_embeddings;
  const at::Tensor table = position_embeddings.slice(1, 1)
                               .reshape({1, grid, grid, config_.hidden_size})
                               .permute({0, 3, 1, 2})
                               .to(at::kFloat);
  const at::Tensor fitted = register_tokens.defined()
                                ? at::_upsample_bicubic2d_aa(table, {rows, columns}, /*align_corners=*/false)
                                : at::upsample_bicubic2d(table, {rows, columns}, /*align_corners=*/false);
  const at::Tensor patches = fitted.permute({0, 2, 3, 1}).reshape({1, rows * columns, config_.hidden_size});
  return at::cat({position_embeddings.narrow(1, 0, 1), patches.to(position_embeddings.scalar_type())}, 1);
}

at::Tensor Dinov2Embeddings::forward(const at::Tensor& pixels, const at::Tensor& masks) const {
  const std::int64_t batch = pixels.size(0);
  at::Tensor patches = projection_->forward(pixels);
  if (masks.defined()) {
    TORCH_CHECK(mask_token.defined(), "dinov2: got masks, and the model has model.use_mask_token = false");
    TORCH_CHECK(masks.scalar_type() == at::kBool && masks.sizes() == patches.sizes().slice(0, 2),
                "dinov2: got masks of shape ", masks.sizes(), " and type ", masks.scalar_type(), "; want bool ",
                patches.sizes().slice(0, 2), ", one for each patch");
    patches = at::where(masks.unsqueeze(-1), mask_token.to(patches.scalar_type()).unsqueeze(0), patches);
  }
  at::Tensor x = at::cat({cls_token.expand({batch, -1, -1}), patches}, 1) + positions(pixels.size(2), pixels.size(3));
  if (register_tokens.defined()) {
    x = at::cat({x.narrow(1, 0, 1), register_tokens.expand({batch, -1, -1}), x.slice(1, 1)}, 1);
  }
  return drop_out(x, config_.hidden_dropout_prob, is_training());
}

Dinov2Attention::Dinov2Attention(const spec::Dinov2& c)
    : heads_(c.num_attention_heads), probs_dropout_(c.attention_probs_dropout_prob), dropout_(c.hidden_dropout_prob) {
  const auto projection = [&](bool has_bias) {
    return std::make_shared<Linear>(c.hidden_size, c.hidden_size, has_bias);
  };
  const auto inner = register_module("attention", std::make_shared<torch::nn::Module>());
  query_ = inner->register_module("query", projection(c.qkv_bias));
  key_ = inner->register_module("key", projection(c.qkv_bias));
  value_ = inner->register_module("value", projection(c.qkv_bias));
  dense_ = register_module("output", std::make_shared<torch::nn::Module>())->register_module("dense", projection(true));
}

at::Tensor Dinov2Attention::forward(const at::Tensor& x) const {
  const std::int64_t batch = x.size(0), tokens = x.size(1), hidden = x.size(2);
  const auto by_heads = [&](const Linear& projection) {
    return projection.forward(x).view({batch, tokens, heads_, hidden / heads_}).transpose(1, 2);
  };
  const at::Tensor out = attention(by_heads(*query_), by_heads(*key_), by_heads(*value_), Mask{}, /*scale=*/{},
                                   probs_dropout_, is_training());
  return drop_out(dense_->forward(out.transpose(1, 2).reshape({batch, tokens, hidden})), dropout_, is_training());
}

Dinov2Mlp::Dinov2Mlp(const spec::Dinov2& c) : swiglu_(c.use_swiglu_ffn), act_(activation_of(c.hidden_act)) {
  const std::int64_t inner = c.inner_size();
  in_ = register_module(swiglu_ ? "weights_in" : "fc1",
                        std::make_shared<Linear>(c.hidden_size, swiglu_ ? 2 * inner : inner, true));
  out_ = register_module(swiglu_ ? "weights_out" : "fc2", std::make_shared<Linear>(inner, c.hidden_size, true));
}

at::Tensor Dinov2Mlp::forward(const at::Tensor& x) const {
  const at::Tensor inside = in_->forward(x);
  if (!swiglu_) return out_->forward(activate(act_, inside));
  const auto halves = inside.chunk(2, -1);
  return out_->forward(swiglu(halves[0].contiguous(), halves[1].contiguous()));
}

Dinov2LayerScale::Dinov2LayerScale(std::int64_t size) : lambda1(register_parameter("lambda1", uninitialised({size}))) {}

at::Tensor Dinov2LayerScale::forward(const at::Tensor& x) const {
  return x * lambda1;
}

Dinov2Layer::Dinov2Layer(const spec::Dinov2& c)
    : drop_path_(c.drop_path_rate),
      norm1_(register_module("norm1", std::make_shared<LayerNorm>(c.hidden_size, c.layer_norm_eps))),
      norm2_(register_module("norm2", std::make_shared<LayerNorm>(c.hidden_size, c.layer_norm_eps))),
      attention_(register_module("attention", std::make_shared<Dinov2Attention>(c))),
      layer_scale1_(register_module("layer_scale1", std::make_shared<Dinov2LayerScale>(c.hidden_size))),
      layer_scale2_(register_module("layer_scale2", std::make_shared<Dinov2LayerScale>(c.hidden_size))),
      mlp_(register_module("mlp", std::make_shared<Dinov2Mlp>(c))) {}

at::Tensor Dinov2Layer::forward(at::Tensor x) const {
  return call(wrapper, std::move(x), [this](const at::Tensor& in) {
    const at::Tensor mid = in + call(attention_wrapper, in, [this](const at::Tensor& a) {
                             const at::Tensor attended = attention_->forward(norm1_->forward(a));
                             return drop_path(layer_scale1_->forward(attended), drop_path_, is_training());
                           });
    return mid + call(mlp_wrapper, mid, [this](const at::Tensor& m) {
             return drop_path(layer_scale2_->forward(mlp_->forward(norm2_->forward(m))), drop_path_, is_training());
           });
  });
}

Dinov2Model::Dinov2Model(const spec::Dinov2& config) : config_(config) {
  check_dinov2(config_);
  embeddings_ = register_module("embeddings", std::make_shared<Dinov2Embeddings>(config_));
  const auto encoder = register_module("encoder", std::make_shared<torch::nn::Module>());
  const auto list = encoder->register_module("layer", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i) {
    layers_.push_back(list->register_module(std::to_string(i), std::make_shared<Dinov2Layer>(config_)));
  }
  layernorm_ = register_module("layernorm", std::make_shared<LayerNorm>(config_.hidden_size, config_.layer_norm_eps));
}

Dinov2Output Dinov2Model::forward(const at::Tensor& pixels, const at::Tensor& masks) const {
  TORCH_CHECK(pixels.dim() == 4 && pixels.size(1) == config_.num_channels && pixels.size(2) >= config_.patch_size &&
                  pixels.size(3) >= config_.patch_size,
              "dinov2: got pixels of shape ", pixels.sizes(), "; want [batch, ", config_.num_channels,
              ", height, width] with sides of at least patch_size = ", config_.patch_size);
  const at::Tensor tokens = call(wrapper, pixels, [this, masks](const at::Tensor& in) {
    at::Tensor x = embeddings_->forward(in, masks);
    for (const auto& layer : layers_) x = layer->forward(x);
    return layernorm_->forward(x);
  });
  return {tokens, config_.num_register_tokens};
}

}  // namespace worker
