#include "worker/models/dinov2/dinov2_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_upsample_bicubic2d_aa.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/upsample_bicubic2d.h>
#include <ATen/ops/where.h>
#include <c10/util/Exception.h>

#include <utility>

#include "worker/models/config_members.h"
#include "worker/models/fused_ops.h"
#include "worker/models/layers/attention.h"
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

/// The convolution whose stride is its kernel's size. It is computed as one product: the pixels of a patch in a row.
class Dinov2Projection : public torch::nn::Module {
 public:
  explicit Dinov2Projection(const spec::Dinov2& c)
      : weight_(
            register_parameter("weight", uninitialised({c.hidden_size, c.num_channels, c.patch_size, c.patch_size}))),
        bias_(register_parameter("bias", uninitialised({c.hidden_size}))),
        patch_size_(c.patch_size) {}

  /// [batch, channels, height, width] -> [batch, patches, hidden], patches by rows. Pixels at the right and lower
  /// border that fill no patch are left out.
  at::Tensor forward(const at::Tensor& pixels) const {
    const std::int64_t batch = pixels.size(0), channels = pixels.size(1), p = patch_size_;
    const std::int64_t rows = pixels.size(2) / p, columns = pixels.size(3) / p;
    const at::Tensor patches = pixels.narrow(2, 0, rows * p)
                                   .narrow(3, 0, columns * p)
                                   .reshape({batch, channels, rows, p, columns, p})
                                   .permute({0, 2, 4, 1, 3, 5})
                                   .reshape({batch, rows * columns, channels * p * p});
    return worker::linear(patches.to(weight_.scalar_type()), weight_.flatten(1), bias_);
  }

 private:
  at::Tensor weight_, bias_;  ///< [hidden, channels, patch_size, patch_size], [hidden]
  std::int64_t patch_size_;
};

/// Patches to tokens. The order is [class, registers, patches].
class Dinov2Embeddings : public torch::nn::Module {
 public:
  explicit Dinov2Embeddings(const spec::Dinov2& c)
      : cls_token_(register_parameter("cls_token", uninitialised({1, 1, c.hidden_size}))), config_(c) {
    if (c.use_mask_token) mask_token_ = register_parameter("mask_token", uninitialised({1, c.hidden_size}));
    if (c.num_register_tokens > 0) {
      register_tokens_ =
          register_parameter("register_tokens", uninitialised({1, c.num_register_tokens, c.hidden_size}));
    }
    position_embeddings_ =
        register_parameter("position_embeddings", uninitialised({1, 1 + c.grid() * c.grid(), c.hidden_size}));
    projection_ = add_child<Dinov2Projection>(*add_group(*this, "patch_embeddings"), "projection", c);
  }

  /// Does the part of Dinov2Model::forward() that comes before the blocks.
  at::Tensor forward(const at::Tensor& pixels, const at::Tensor& masks) const {
    const std::int64_t batch = pixels.size(0);
    at::Tensor patches = projection_->forward(pixels);
    if (masks.defined()) {
      TORCH_CHECK(mask_token_.defined(), "dinov2: got masks, and the model has model.use_mask_token = false");
      TORCH_CHECK(masks.scalar_type() == at::kBool && masks.sizes() == patches.sizes().slice(0, 2),
                  "dinov2: got masks of shape ", masks.sizes(), " and type ", masks.scalar_type(), "; want bool ",
                  patches.sizes().slice(0, 2), ", one for each patch");
      patches = at::where(masks.unsqueeze(-1), mask_token_.to(patches.scalar_type()).unsqueeze(0), patches);
    }
    at::Tensor x =
        at::cat({cls_token_.expand({batch, -1, -1}), patches}, 1) + positions(pixels.size(2), pixels.size(3));
    if (register_tokens_.defined()) {
      x = at::cat({x.narrow(1, 0, 1), register_tokens_.expand({batch, -1, -1}), x.slice(1, 1)}, 1);
    }
    return drop_out(x, config_.hidden_dropout_prob, is_training());
  }

 private:
  /// [1, 1 + patches, hidden] for an image of this size.
  at::Tensor positions(std::int64_t height, std::int64_t width) const {
    const std::int64_t grid = config_.grid(), rows = height / config_.patch_size, columns = width / config_.patch_size;
    // transformers interpolates to the same size, too, where the image is no square but has as many patches.
    if (rows * columns == grid * grid && height == width) return position_embeddings_;
    const at::Tensor table = position_embeddings_.slice(1, 1)
                                 .reshape({1, grid, grid, config_.hidden_size})
                                 .permute({0, 3, 1, 2})
                                 .to(at::kFloat);
    const at::Tensor fitted = register_tokens_.defined()
                                  ? at::_upsample_bicubic2d_aa(table, {rows, columns}, /*align_corners=*/false)
                                  : at::upsample_bicubic2d(table, {rows, columns}, /*align_corners=*/false);
    const at::Tensor patches = fitted.permute({0, 2, 3, 1}).reshape({1, rows * columns, config_.hidden_size});
    return at::cat({position_embeddings_.narrow(1, 0, 1), patches.to(position_embeddings_.scalar_type())}, 1);
  }

  at::Tensor cls_token_;            ///< [1, 1, hidden]
  at::Tensor mask_token_;           ///< [1, hidden]; undefined without one
  at::Tensor register_tokens_;      ///< [1, registers, hidden]; undefined without one
  at::Tensor position_embeddings_;  ///< [1, 1 + grid * grid, hidden], the class token's first
  spec::Dinov2 config_;
  std::shared_ptr<Dinov2Projection> projection_;
};

/// Self-attention over all tokens, with a projection each for queries, keys and values.
class Dinov2Attention : public torch::nn::Module {
 public:
  explicit Dinov2Attention(const spec::Dinov2& c)
      : heads_(c.num_attention_heads), probs_dropout_(c.attention_probs_dropout_prob), dropout_(c.hidden_dropout_prob) {
    const auto inner = add_group(*this, "attention");
    query_ = add_child<Linear>(*inner, "query", c.hidden_size, c.hidden_size, c.qkv_bias);
    key_ = add_child<Linear>(*inner, "key", c.hidden_size, c.hidden_size, c.qkv_bias);
    value_ = add_child<Linear>(*inner, "value", c.hidden_size, c.hidden_size, c.qkv_bias);
    dense_ = add_child<Linear>(*add_group(*this, "output"), "dense", c.hidden_size, c.hidden_size, true);
  }

  /// [batch, tokens, hidden] -> [batch, tokens, hidden].
  at::Tensor forward(const at::Tensor& x) const {
    const auto by_heads = [&](const Linear& projection) { return split_heads(projection.forward(x), heads_); };
    const at::Tensor out = attention(by_heads(*query_), by_heads(*key_), by_heads(*value_), Mask{}, /*scale=*/{},
                                     probs_dropout_, is_training());
    return drop_out(dense_->forward(joined_heads(out)), dropout_, is_training());
  }

 private:
  std::int64_t heads_;
  double probs_dropout_, dropout_;
  std::shared_ptr<Linear> query_, key_, value_, dense_;
};

/// fc2(act(fc1(x))), or weights_out(silu(a) * b) with [a, b] = weights_in(x).
class Dinov2Mlp : public torch::nn::Module {
 public:
  explicit Dinov2Mlp(const spec::Dinov2& c) : swiglu_(c.use_swiglu_ffn), act_(activation_of(c.hidden_act)) {
    const std::int64_t inner = c.inner_size();
    in_ = add_child<Linear>(*this, swiglu_ ? "weights_in" : "fc1", c.hidden_size, swiglu_ ? 2 * inner : inner, true);
    out_ = add_child<Linear>(*this, swiglu_ ? "weights_out" : "fc2", inner, c.hidden_size, true);
  }

  at::Tensor forward(const at::Tensor& x) const {
    const at::Tensor inside = in_->forward(x);
    if (!swiglu_) return out_->forward(activate(act_, inside));
    const auto halves = inside.chunk(2, -1);
    return out_->forward(swiglu(halves[0].contiguous(), halves[1].contiguous()));
  }

 private:
  bool swiglu_;
  Activation act_;
  std::shared_ptr<Linear> in_, out_;
};

/// x * lambda1 (Touvron et al., "Going deeper with Image Transformers", 2021).
class Dinov2LayerScale : public torch::nn::Module {
 public:
  explicit Dinov2LayerScale(std::int64_t size) : lambda1_(register_parameter("lambda1", uninitialised({size}))) {}
  at::Tensor forward(const at::Tensor& x) const { return x * lambda1_; }

 private:
  at::Tensor lambda1_;  ///< [hidden]
};

Dinov2Layer::Dinov2Layer(const spec::Dinov2& c)
    : drop_path_(c.drop_path_rate),
      norm1_(add_child<LayerNorm>(*this, "norm1", c.hidden_size, c.layer_norm_eps)),
      norm2_(add_child<LayerNorm>(*this, "norm2", c.hidden_size, c.layer_norm_eps)),
      attention_(add_child<Dinov2Attention>(*this, "attention", c)),
      layer_scale1_(add_child<Dinov2LayerScale>(*this, "layer_scale1", c.hidden_size)),
      layer_scale2_(add_child<Dinov2LayerScale>(*this, "layer_scale2", c.hidden_size)),
      mlp_(add_child<Dinov2Mlp>(*this, "mlp", c)) {}

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
  embeddings_ = add_child<Dinov2Embeddings>(*this, "embeddings", config_);
  layers_ = add_list<Dinov2Layer>(*add_group(*this, "encoder"), "layer", config_.num_hidden_layers, config_);
  layernorm_ = add_child<LayerNorm>(*this, "layernorm", config_.hidden_size, config_.layer_norm_eps);
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
