#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "spec/tables/llama_keys.h"
#include "worker/models/causal_model.h"
#include "worker/models/layers/attention.h"
#include "worker/models/layers/layers.h"

namespace worker {

/// Data that every layer of one forward call shares. Copies are cheap.
struct LlamaContext {
  RopeTable rope;
  Mask mask;
};

/// Self-attention with grouped key/value heads (Ainslie et al., GQA).
class LlamaAttention : public torch::nn::Module {
 public:
  explicit LlamaAttention(const spec::Llama& config);
  /// [batch, positions, hidden] -> [batch, positions, hidden]. Reads and extends `cached` where it is not null.
  at::Tensor forward(const at::Tensor& x, const LlamaContext& context, KeyValues* cached) const;

 private:
  std::int64_t heads_, kv_heads_, head_dim_;
  double dropout_;
  std::shared_ptr<Linear> q_proj_, k_proj_, v_proj_, o_proj_;
};

/// SwiGLU (Shazeer, GLU Variants Improve Transformer): down(silu(gate(x)) * up(x)).
class LlamaMlp : public torch::nn::Module {
 public:
  explicit LlamaMlp(const spec::Llama& config);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  std::shared_ptr<Linear> gate_proj_, up_proj_, down_proj_;
};

/// x + attention(norm(x)), then x + mlp(norm(x)).
class LlamaDecoderLayer : public Block {
 public:
  explicit LlamaDecoderLayer(const spec::Llama& config);
  /// [batch, positions, hidden] -> [batch, positions, hidden].
  at::Tensor forward(at::Tensor x, const LlamaContext& context, KeyValues* cached) const;

 private:
  std::shared_ptr<LlamaAttention> self_attn_;
  std::shared_ptr<LlamaMlp> mlp_;
  std::shared_ptr<RmsNorm> input_layernorm_, post_attention_layernorm_;
};

/// Embedding, blocks and final norm.
class LlamaModel : public torch::nn::Module {
 public:
  explicit LlamaModel(const spec::Llama& config);
  /// Token ids -> [batch, positions, hidden].
  at::Tensor forward(const Rows& rows, Cache* cache) const;
  const Embedding& embedding() const { return *embed_tokens_; }

  std::vector<std::shared_ptr<LlamaDecoderLayer>> layers;
  std::shared_ptr<RmsNorm> norm;

 private:
  spec::Llama config_;
  std::shared_ptr<Embedding> embed_tokens_;
  RopeOptions rope_;
};

/// Llama with a language-model head. With a tied head there is no `lm_head.weight`.
class LlamaForCausalLm : public CausalModelOf<spec::Llama, LlamaModel> {
 public:
  /// The parameters have no values yet: see draw(). Throws std::invalid_argument naming
  /// key, value and remedy when the sizes contradict each other.
  explicit LlamaForCausalLm(const spec::Llama& config);

  /// Draws first values for elements of the parameter `name` into `values`: Normal(0, initializer_range) for matrices,
  /// ones for norms, zeros for biases, as transformers does.
  void draw(const std::string& name, const at::Tensor& values, at::Generator& random) const;
};

}  // namespace worker
