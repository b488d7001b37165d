#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "spec/tables/llama_keys.h"
#include "worker/models/causal_model.h"
#include "worker/models/layers/attention.h"
#include "worker/models/layers/layers.h"

namespace worker {

class LlamaAttention;
class LlamaMlp;

/// x + attention(norm(x)), then x + mlp(norm(x)).
class LlamaDecoderLayer : public Block {
 public:
  explicit LlamaDecoderLayer(const spec::Llama& config);
  /// [batch, positions, hidden] -> [batch, positions, hidden].
  at::Tensor forward(at::Tensor x, const DecoderContext& context, KeyValues* cached) const;

 private:
  std::shared_ptr<LlamaAttention> self_attn_;
  std::shared_ptr<LlamaMlp> mlp_;
  std::shared_ptr<RmsNorm> input_layernorm_, post_attention_layernorm_;
};

/// Embedding and blocks, and the norm after them, which the head's call computes.
class LlamaModel : public torch::nn::Module {
 public:
  explicit LlamaModel(const spec::Llama& config);
  /// Token ids -> the output of the last block, [batch, positions, hidden].
  at::Tensor forward(const Rows& rows, Cache* cache) const;

  std::shared_ptr<TokenEmbedding> embedding;
  std::vector<std::shared_ptr<LlamaDecoderLayer>> layers;
  std::shared_ptr<RmsNorm> final_norm;

 private:
  spec::Llama config_;
};

/// Llama with a language-model head. With a tied head there is no `lm_head.weight`.
class LlamaForCausalLm : public CausalModelOf<spec::Llama, LlamaModel> {
 public:
  /// The parameters have no values yet. Throws std::invalid_argument naming key, value and remedy when the sizes
  /// contradict each other.
  explicit LlamaForCausalLm(const spec::Llama& config);
};

}  // namespace worker
