#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "opt/table.h"
#include "worker/models/causal_model.h"
#include "worker/models/layers/attention.h"
#include "worker/models/layers/layers.h"

namespace worker {

/// Self-attention with a projection for each of queries, keys and values. All have biases.
class OptAttention : public torch::nn::Module {
 public:
  explicit OptAttention(const spec::Opt& config);
  /// [batch, positions, hidden] -> [batch, positions, hidden]. Reads and extends `cached` where it is not null.
  at::Tensor forward(const at::Tensor& x, const Mask& mask, KeyValues* cached) const;

 private:
  std::int64_t heads_, head_dim_;
  std::shared_ptr<Linear> k_proj_, v_proj_, q_proj_, out_proj_;
};

/// x + attention(norm(x)), then x + fc2(relu(fc1(norm(x)))). The sums are outside of the two parts' wrappers.
class OptLayer : public Block {
 public:
  explicit OptLayer(const spec::Opt& config);
  /// [batch, positions, hidden] -> [batch, positions, hidden].
  at::Tensor forward(at::Tensor x, const Mask& mask, KeyValues* cached) const;

 private:
  double dropout_;
  std::shared_ptr<OptAttention> self_attn_;
  std::shared_ptr<LayerNorm> self_attn_layer_norm_, final_layer_norm_;
  std::shared_ptr<Linear> fc1_, fc2_;
};

/// OPT (Zhang et al., arXiv 2205.01068) with a language-model head, which is the table of token embeddings.
class OptForCausalLm : public CausalModel {
 public:
  /// The parameters have no values yet. Throws std::invalid_argument naming key, value and remedy when the sizes
  /// contradict each other.
  explicit OptForCausalLm(const spec::Opt& config);

  Cache cache(std::int64_t batch, std::int64_t capacity, at::ScalarType dtype, at::Device device) const override;
  std::vector<std::shared_ptr<Block>> blocks() const override;

 protected:
  at::Tensor hidden(const Rows& rows, Cache* cache) const override;
  Factors head(const at::Tensor& hidden) const override;

 private:
  const spec::Opt config_;
  std::shared_ptr<Embedding> embed_tokens_, embed_positions_;
  std::shared_ptr<LayerNorm> final_layer_norm_;
  std::vector<std::shared_ptr<OptLayer>> layers_;
};

}  // namespace worker
