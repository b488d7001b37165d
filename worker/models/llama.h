#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "models/call_wrapper.h"
#include "models/fused_ops.h"
#include "schema/tables/llama.h"

namespace worker {

/// x / rms(x) * weight over the last dim (Zhang and Sennrich, 2019), computed in fp32 and then cast to x's type.
class RmsNorm : public torch::nn::Module {
 public:
  RmsNorm(std::int64_t size, double eps);
  at::Tensor forward(const at::Tensor& x) const;

  at::Tensor weight;  ///< [size]

 private:
  double eps_;
};

/// x W^T without bias.
class Linear : public torch::nn::Module {
 public:
  Linear(std::int64_t in, std::int64_t out);
  at::Tensor forward(const at::Tensor& x) const;

  at::Tensor weight;  ///< [out, in]
};

/// Looks up rows of a table.
class Embedding : public torch::nn::Module {
 public:
  Embedding(std::int64_t count, std::int64_t size);
  at::Tensor forward(const at::Tensor& ids) const;

  at::Tensor weight;  ///< [count, size]
};

/// Causal self-attention with grouped key/value heads (Ainslie et al., GQA).
class LlamaAttention : public torch::nn::Module {
 public:
  explicit LlamaAttention(const schema::Llama& config);
  /// [batch, positions, hidden] -> [batch, positions, hidden].
  at::Tensor forward(const at::Tensor& x, const RopeTable& rope) const;

 private:
  std::int64_t heads_, kv_heads_, head_dim_;
  std::shared_ptr<Linear> q_proj_, k_proj_, v_proj_, o_proj_;
};

/// SwiGLU (Shazeer, GLU Variants Improve Transformer): down(silu(gate(x)) * up(x)).
class LlamaMlp : public torch::nn::Module {
 public:
  explicit LlamaMlp(const schema::Llama& config);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  std::shared_ptr<Linear> gate_proj_, up_proj_, down_proj_;
};

/// One block: x + attention(norm(x)), then x + mlp(norm(x)). The whole block and each of the two sums are called
/// through wrappers.
class LlamaDecoderLayer : public torch::nn::Module {
 public:
  explicit LlamaDecoderLayer(const schema::Llama& config);
  /// [batch, positions, hidden] -> [batch, positions, hidden].
  at::Tensor forward(at::Tensor x, const RopeTable& rope) const;

  CallWrapper wrapper = call_directly, attention_wrapper = call_directly, mlp_wrapper = call_directly;

 private:
  std::shared_ptr<LlamaAttention> self_attn_;
  std::shared_ptr<LlamaMlp> mlp_;
  std::shared_ptr<RmsNorm> input_layernorm_, post_attention_layernorm_;
};

/// Embedding, blocks and final norm.
class LlamaModel : public torch::nn::Module {
 public:
  explicit LlamaModel(const schema::Llama& config);
  /// Token ids [batch, positions] -> [batch, positions, hidden].
  at::Tensor forward(const at::Tensor& ids) const;

  std::shared_ptr<Embedding> embed_tokens;
  std::vector<std::shared_ptr<LlamaDecoderLayer>> layers;
  std::shared_ptr<RmsNorm> norm;

 private:
  schema::Llama config_;
};

/// Llama with a language-model head. Parameters are fp32 and have Hugging Face's names. With a tied head
/// there is no `lm_head.weight`. The model knows nothing of sharding; see `wrapper`.
class LlamaForCausalLm : public torch::nn::Module {
 public:
  /// The parameters have no values yet: see draw(). Throws std::invalid_argument naming
  /// key, value and remedy when the sizes contradict each other.
  explicit LlamaForCausalLm(const schema::Llama& config);

  /// Draws first values for elements of the parameter `name` into `values`: Normal(0, initializer_range) for matrices,
  /// ones for norms.
  void draw(const std::string& name, const at::Tensor& values, at::Generator& random) const;

  /// Token ids int64 [batch, positions] -> logits [batch, positions, vocab]. Throws c10::Error for more positions than
  /// max_position_embeddings.
  at::Tensor forward(at::Tensor ids) const;

  /// The sum of the cross entropies of the targets, int64 [batch, positions], without all logits at once; see
  /// linear_cross_entropy().
  at::Tensor loss(at::Tensor ids, const at::Tensor& targets) const;

  const schema::Llama& config() const { return config_; }
  const std::vector<std::shared_ptr<LlamaDecoderLayer>>& layers() const { return model_->layers; }

  /// The wrapper of the whole call. Each layer also has its own.
  CallWrapper wrapper = call_directly;

 private:
  /// [vocab, hidden]
  const at::Tensor& head() const;

  schema::Llama config_;
  std::shared_ptr<LlamaModel> model_;
  std::shared_ptr<Linear> lm_head_;  ///< null when tied
};

}  // namespace worker
