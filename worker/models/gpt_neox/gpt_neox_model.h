#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "spec/tables/gpt_neox_keys.h"
#include "worker/models/causal_model.h"
#include "worker/models/layers/attention.h"
#include "worker/models/layers/layers.h"

namespace worker {

/// Data that every layer of one forward call shares. Copies are cheap.
struct GptNeoXContext {
  RopeTable rope;
  Mask mask;
};

/// Self-attention with one projection for queries, keys and values. Its rows are packed by heads: [heads, 3, head_dim].
class GptNeoXAttention : public torch::nn::Module {
 public:
  explicit GptNeoXAttention(const spec::GptNeoX& config);
  /// [batch, positions, hidden] -> [batch, positions, hidden]. Reads and extends `cached` where it is not null.
  at::Tensor forward(const at::Tensor& x, const GptNeoXContext& context, KeyValues* cached) const;

 private:
  std::int64_t heads_, head_dim_;
  double dropout_;
  std::shared_ptr<Linear> query_key_value_, dense_;
};

/// down(act(up(x))), both with biases.
class GptNeoXMlp : public torch::nn::Module {
 public:
  explicit GptNeoXMlp(const spec::GptNeoX& config);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  Activation act_;
  std::shared_ptr<Linear> dense_h_to_4h_, dense_4h_to_h_;
};

/// Parallel residual (Wang and Komatsuzaki, GPT-J): x + attention(norm(x)) + mlp(norm(x)), with two norms. Without it,
/// x + attention(norm(x)), then x + mlp(norm(x)). The sums are outside of the two parts' wrappers.
class GptNeoXLayer : public Block {
 public:
  explicit GptNeoXLayer(const spec::GptNeoX& config);
  /// [batch, positions, hidden] -> [batch, positions, hidden].
  at::Tensor forward(at::Tensor x, const GptNeoXContext& context, KeyValues* cached) const;

 private:
  bool parallel_;
  double dropout_;
  std::shared_ptr<LayerNorm> input_layernorm_, post_attention_layernorm_;
  std::shared_ptr<GptNeoXAttention> attention_;
  std::shared_ptr<GptNeoXMlp> mlp_;
};

/// Embedding, blocks and final norm.
class GptNeoXModel : public torch::nn::Module {
 public:
  explicit GptNeoXModel(const spec::GptNeoX& config);
  /// Token ids -> [batch, positions, hidden].
  at::Tensor forward(const Rows& rows, Cache* cache) const;
  const Embedding& embedding() const { return *embed_in_; }

  std::vector<std::shared_ptr<GptNeoXLayer>> layers;
  std::shared_ptr<LayerNorm> final_layer_norm;

 private:
  spec::GptNeoX config_;
  std::shared_ptr<Embedding> embed_in_;
};

/// GPT-NeoX, such as Pythia, with a language-model head. With a tied head there is no `embed_out.weight`.
class GptNeoXForCausalLm : public CausalModelOf<spec::GptNeoX, GptNeoXModel> {
 public:
  /// The parameters have no values yet. Throws std::invalid_argument naming key, value and remedy when the sizes
  /// contradict each other.
  explicit GptNeoXForCausalLm(const spec::GptNeoX& config);
};

}  // namespace worker
