#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

#include "spec/tables/gpt_neox_keys.h"
#include "worker/models/causal_model.h"
#include "worker/models/layers/attention.h"
#include "worker/models/layers/layers.h"

namespace worker {

class GptNeoXAttention;
class GptNeoXMlp;

/// Parallel residual (Wang and Komatsuzaki, GPT-J): x + attention(norm(x)) + mlp(norm(x)), with two norms. Without it,
/// x + attention(norm(x)), then x + mlp(norm(x)). The sums are outside of the two parts' wrappers.
class GptNeoXLayer : public Block {
 public:
  explicit GptNeoXLayer(const spec::GptNeoX& config);
  /// [batch, positions, hidden] -> [batch, positions, hidden].
  at::Tensor forward(at::Tensor x, const DecoderContext& context, KeyValues* cached) const;

 private:
  bool parallel_;
  double dropout_;
  std::shared_ptr<LayerNorm> input_layernorm_, post_attention_layernorm_;
  std::shared_ptr<GptNeoXAttention> attention_;
  std::shared_ptr<GptNeoXMlp> mlp_;
};

/// Embedding and blocks, and the norm after them, which the head's call computes.
class GptNeoXModel : public torch::nn::Module {
 public:
  explicit GptNeoXModel(const spec::GptNeoX& config);
  /// Token ids -> the output of the last block, [batch, positions, hidden].
  at::Tensor forward(const Rows& rows, Cache* cache) const;

  std::shared_ptr<TokenEmbedding> embedding;
  std::vector<std::shared_ptr<GptNeoXLayer>> layers;
  std::shared_ptr<LayerNorm> final_norm;

 private:
  spec::GptNeoX config_;
};

/// GPT-NeoX, such as Pythia, with a language-model head. With a tied head there is no `embed_out.weight`.
class GptNeoXForCausalLm : public CausalModelOf<spec::GptNeoX, GptNeoXModel> {
 public:
  /// The parameters have no values yet. Throws std::invalid_argument naming key, value and remedy when the sizes
  /// contradict each other.
  explicit GptNeoXForCausalLm(const spec::GptNeoX& config);
};

}  // namespace worker
