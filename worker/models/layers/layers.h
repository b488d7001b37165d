#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "worker/models/fused_ops.h"

namespace worker {

using Tensors = std::vector<at::Tensor>;

/// A part of a model as a function of its differentiable inputs. Tensors that it captures get no gradient where a
/// wrapper recomputes it.
using Forward = std::function<Tensors(Tensors inputs)>;

/// How a part of a model is called. The owner of the call (a sharding unit, activation checkpointing) may act before
/// and after, may call `forward` again during backward, and may nest another wrapper. The wrapper must return what
/// `forward` returns.
using CallWrapper = std::function<Tensors(Tensors inputs, const Forward& forward)>;

/// The default wrapper: calls `forward` and does nothing else.
inline Tensors call_directly(Tensors inputs, const Forward& forward) {
  return forward(std::move(inputs));
}

/// Calls `forward`, a function of one tensor, through a wrapper.
template <class OfOne>
at::Tensor call(const CallWrapper& wrapper, at::Tensor input, OfOne forward) {
  return wrapper({std::move(input)},
                 [forward = std::move(forward)](Tensors inputs) { return Tensors{forward(std::move(inputs[0]))}; })[0];
}

/// `inner` inside of `outer`.
inline CallWrapper nested(CallWrapper outer, CallWrapper inner) {
  return [outer = std::move(outer), inner = std::move(inner)](Tensors inputs, const Forward& forward) {
    return outer(std::move(inputs), [inner, forward](Tensors passed) { return inner(std::move(passed), forward); });
  };
}

/// A parameter without values, in fp32. Its owner draws or loads them.
inline at::Tensor uninitialised(at::IntArrayRef shape) {
  return at::empty(shape, at::kFloat);
}

/// The base of a module that may be a sharding unit: its calls go through `wrapper`.
struct Wrapped {
  CallWrapper wrapper = call_directly;
};

/// One of a model's equal blocks: a unit of its own, with two parts that can be recomputed alone. The block calls its
/// attention, with the norm beside it, through `attention_wrapper` and its feed-forward part through `mlp_wrapper`,
/// both inside of `wrapper`.
class Block : public torch::nn::Module, public Wrapped {
 public:
  CallWrapper attention_wrapper = call_directly, mlp_wrapper = call_directly;
};

/// A part of a model before or after its blocks that is a unit of its own: the table of its tokens, and its head. Only
/// the part's calls through `wrapper` use its parameters.
struct OuterPart : Wrapped {
  bool is_first = false, is_last = false;  ///< in a forward; both where embedding and head are tied
  /// Modules whose parameters the part's calls use, too, such as the norm before the head.
  std::vector<std::shared_ptr<torch::nn::Module>> with;
};

/// A new module, which `parent` registers under that name.
template <class Module, class... Arguments>
std::shared_ptr<Module> add_child(torch::nn::Module& parent, const std::string& name, Arguments&&... arguments) {
  return parent.register_module(name, std::make_shared<Module>(std::forward<Arguments>(arguments)...));
}

/// A child that only groups others under a name of Hugging Face.
inline std::shared_ptr<torch::nn::Module> add_group(torch::nn::Module& parent, const std::string& name) {
  return add_child<torch::nn::Module>(parent, name);
}

/// `count` equal modules in a group: name.0, name.1, ..
template <class Module, class Config>
std::vector<std::shared_ptr<Module>> add_list(torch::nn::Module& parent, const std::string& name, std::int64_t count,
                                              const Config& config) {
  const auto group = add_group(parent, name);
  std::vector<std::shared_ptr<Module>> out;
  for (std::int64_t i = 0; i < count; ++i) out.push_back(add_child<Module>(*group, std::to_string(i), config));
  return out;
}

/// Factors of a product: x W^T.
struct Factors {
  at::Tensor x;       ///< [.., in]
  at::Tensor weight;  ///< W [out, in]
};

/// x W^T + b, without b by default.
class Linear : public torch::nn::Module {
 public:
  Linear(std::int64_t in, std::int64_t out, bool has_bias = false);
  /// [.., in] -> [.., out].
  at::Tensor forward(const at::Tensor& x) const;

  /// The factors of forward(x) without b, for functions that take a weight. With an adapter x has its `rank` more
  /// columns, and W is a copy with B beside it.
  Factors factors(const at::Tensor& x) const;

  /// The results of two or three layers, side by side, by one product: [.., in] -> [.., sum of outs]. Undefined where
  /// the layers must be called one by one: their weights do not follow each other in memory (see joint_linear()), or
  /// one of them has a bias or an adapter.
  static at::Tensor together(const at::Tensor& x, std::initializer_list<const Linear*> layers);

  /// Adds a low-rank adapter (Hu et al., LoRA, arXiv 2106.09685): the result gets `scale` * B A drop_out(x) added. A is
  /// the parameter `lora_A.weight` [rank, in] and B is `lora_B.weight` [out, rank], as PEFT names them. The adapter
  /// changes nothing as long as B is zero. `dropout` is the share of x's elements that training sets to zero for A.
  /// Call it once, before the module is sharded. Throws c10::Error for a rank below 1 and for a second adapter.
  void add_adapter(std::int64_t rank, double scale, double dropout);

  at::Tensor weight;  ///< [out, in]
  at::Tensor bias;    ///< [out]; undefined without one

 private:
  /// scale * A drop_out(x): [.., in] -> [.., rank].
  at::Tensor adapted(const at::Tensor& x) const;

  std::shared_ptr<Linear> lora_a_, lora_b_;  // null without an adapter
  double lora_scale_ = 0, lora_dropout_ = 0;
};

/// x / rms(x) * weight over the last dim (Zhang and Sennrich, 2019), computed in fp32 and then cast to x's type.
class RmsNorm : public torch::nn::Module {
 public:
  RmsNorm(std::int64_t size, double eps);
  at::Tensor forward(const at::Tensor& x) const;
  /// rms_norm_beside() and rms_norm_of_sum() of worker/models/fused_ops.h.
  Normed beside(const at::Tensor& x) const;
  Normed of_sum(const at::Tensor& x, const at::Tensor& residual) const;

  at::Tensor weight;  ///< [size]

 private:
  double eps_;
};

/// (x - mean(x)) / sqrt(var(x) + eps) * weight + bias over the last dim (Ba et al., arXiv 1607.06450). Mean and
/// variance are computed in fp32.
class LayerNorm : public torch::nn::Module {
 public:
  LayerNorm(std::int64_t size, double eps);
  at::Tensor forward(const at::Tensor& x) const;

  at::Tensor weight, bias;  ///< [size]

 private:
  double eps_;
};

/// Looks up rows of a table.
class Embedding : public torch::nn::Module {
 public:
  Embedding(std::int64_t count, std::int64_t size);
  /// int64 ids [..] -> [.., size].
  at::Tensor forward(const at::Tensor& ids) const;

  at::Tensor weight;  ///< [count, size]
};

/// The embedding of a model's tokens, as a unit of its own.
class TokenEmbedding : public Embedding, public OuterPart {
 public:
  TokenEmbedding(std::int64_t count, std::int64_t size) : Embedding(count, size) { is_first = true; }
  at::Tensor forward(const at::Tensor& ids) const {
    return call(wrapper, ids, [this](const at::Tensor& in) { return Embedding::forward(in); });
  }
};

/// The head that predicts a model's tokens, as a unit of its own. Its owner calls it through `wrapper`.
class TokenHead : public Linear, public OuterPart {
 public:
  TokenHead(std::int64_t in, std::int64_t out) : Linear(in, out) { is_last = true; }
};

/// Sets each element to zero with probability `p`, 0 <= p < 1, and divides the others by 1 - p (Srivastava et al.,
/// 2014). Returns x itself for p = 0 and outside of training, and then draws no random number.
at::Tensor drop_out(const at::Tensor& x, double p, bool training);

/// The nonlinear functions of feed-forward layers.
enum class Activation {
  kGelu,      // x * Phi(x), by erf
  kGeluTanh,  // GELU's approximation by tanh, which Hugging Face calls gelu_new and gelu_pytorch_tanh
  kRelu,
  kSilu
};

/// The function that config.json calls so: gelu, gelu_new, gelu_pytorch_tanh, relu, silu or swish. Throws
/// std::invalid_argument that names the value and lists these names.
Activation activation_of(std::string_view name);

/// The function of each element of x.
at::Tensor activate(Activation function, const at::Tensor& x);

}  // namespace worker
