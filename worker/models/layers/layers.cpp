#include "worker/models/layers/layers.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/dropout.h>
#include <ATen/ops/gelu.h>
#include <ATen/ops/layer_norm.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <c10/util/Exception.h>

#include <stdexcept>

#include "worker/models/ops.h"

namespace worker {

Linear::Linear(std::int64_t in, std::int64_t out, bool has_bias)
    : weight(register_parameter("weight", uninitialised({out, in}))) {
  if (has_bias) bias = register_parameter("bias", uninitialised({out}));
}

at::Tensor Linear::forward(const at::Tensor& x) const {
  const at::Tensor plain = worker::linear(x, weight, bias);
  if (!lora_a_) return plain;
  return plain + lora_b_->forward(adapted(x));
}

Factors Linear::factors(const at::Tensor& x) const {
  if (!lora_a_) return {x, weight};
  return {at::cat({x, adapted(x)}, -1), at::cat({weight, lora_b_->weight}, -1)};
}

at::Tensor Linear::adapted(const at::Tensor& x) const {
  return lora_scale_ * lora_a_->forward(drop_out(x, lora_dropout_, is_training()));
}

at::Tensor Linear::together(const at::Tensor& x, std::initializer_list<const Linear*> layers) {
  std::vector<at::Tensor> weights;
  for (const Linear* layer : layers) {
    if (layer->bias.defined() || layer->lora_a_) return {};
    weights.push_back(layer->weight);
  }
  return joint_linear(x, weights);
}

void Linear::add_adapter(std::int64_t rank, double scale, double dropout) {
  TORCH_CHECK(rank >= 1 && !lora_a_, "add_adapter: rank is ", rank, lora_a_ ? ", and there is an adapter already" : "",
              "; want a rank of at least 1, once a module");
  lora_a_ = add_child<Linear>(*this, "lora_A", weight.size(1), rank);
  lora_b_ = add_child<Linear>(*this, "lora_B", rank, weight.size(0));
  lora_scale_ = scale;
  lora_dropout_ = dropout;
}

RmsNorm::RmsNorm(std::int64_t size, double eps)
    : weight(register_parameter("weight", uninitialised({size}))), eps_(eps) {}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  return rms_norm(x, weight, eps_);
}

Normed RmsNorm::beside(const at::Tensor& x) const {
  return rms_norm_beside(x, weight, eps_);
}

Normed RmsNorm::of_sum(const at::Tensor& x, const at::Tensor& residual) const {
  return rms_norm_of_sum(x, residual, weight, eps_);
}

LayerNorm::LayerNorm(std::int64_t size, double eps)
    : weight(register_parameter("weight", uninitialised({size}))),
      bias(register_parameter("bias", uninitialised({size}))),
      eps_(eps) {}

at::Tensor LayerNorm::forward(const at::Tensor& x) const {
  return at::layer_norm(x.to(weight.scalar_type()), weight.sizes(), weight, bias, eps_).to(x.scalar_type());
}

Embedding::Embedding(std::int64_t count, std::int64_t size)
    : weight(register_parameter("weight", uninitialised({count, size}))) {}

at::Tensor Embedding::forward(const at::Tensor& ids) const {
  return worker::embedding(weight, ids);
}

at::Tensor drop_out(const at::Tensor& x, double p, bool training) {
  return training && p > 0 ? at::dropout(x, p, /*train=*/true) : x;
}

Activation activation_of(std::string_view name) {
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (name == "relu") return Activation::kRelu;
  if (name == "silu" || name == "swish") return Activation::kSilu;
  throw std::invalid_argument("the activation \"" + std::string(name) +
                              "\" does not exist here; want gelu, gelu_new, gelu_pytorch_tanh, relu, silu or swish");
}

at::Tensor activate(Activation function, const at::Tensor& x) {
  switch (function) {
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kSilu:
      return at::silu(x);
  }
  TORCH_CHECK(false, "activate: there is no activation ", static_cast<int>(function));
}

}  // namespace worker
