#include "worker/models/llama/llama_model.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "worker/models/config_members.h"

namespace worker {
namespace {

/// Throws std::invalid_argument when the sizes contradict each other.
const spec::Llama& checked(const spec::Llama& model) {
  check_sizes({{"vocab_size", model.vocab_size},
               {"hidden_size", model.hidden_size},
               {"intermediate_size", model.intermediate_size},
               {"num_hidden_layers", model.num_hidden_layers},
               {"num_attention_heads", model.num_attention_heads},
               {"num_key_value_heads", model.num_key_value_heads},
               {"max_position_embeddings", model.max_position_embeddings}});
  check_no_conflict(spec::conflicts_of(model));
  return model;
}

RopeOptions rope_of(const spec::Llama& c) {
  return {.dim = c.head_size(),
          .theta = c.rope_theta,
          .type = c.rope_type,
          .factor = c.rope_factor,
          .low_freq_factor = c.rope_low_freq_factor,
          .high_freq_factor = c.rope_high_freq_factor,
          .original_positions = c.rope_original_max_position_embeddings};
}

}  // namespace

/// Self-attention with grouped key/value heads (Ainslie et al., GQA).
class LlamaAttention : public torch::nn::Module {
 public:
  explicit LlamaAttention(const spec::Llama& c)
      : heads_(c.num_attention_heads),
        kv_heads_(c.num_key_value_heads),
        head_dim_(c.head_size()),
        dropout_(c.attention_dropout),
        q_proj_(add_child<Linear>(*this, "q_proj", c.hidden_size, heads_ * head_dim_, c.attention_bias)),
        k_proj_(add_child<Linear>(*this, "k_proj", c.hidden_size, kv_heads_ * head_dim_, c.attention_bias)),
        v_proj_(add_child<Linear>(*this, "v_proj", c.hidden_size, kv_heads_ * head_dim_, c.attention_bias)),
        o_proj_(add_child<Linear>(*this, "o_proj", heads_ * head_dim_, c.hidden_size, c.attention_bias)) {}

  /// [batch, positions, hidden] -> [batch, positions, hidden]. Reads and extends `cached` where it is not null.
  at::Tensor forward(const at::Tensor& x, const DecoderContext& context, KeyValues* cached) const {
    const SplitHeads parts = projected(x, context.rope);
    const at::Tensor q = parts.q.transpose(1, 2);
    at::Tensor k = parts.k.transpose(1, 2), v = parts.v.transpose(1, 2);
    use_cache(cached, k, v);
    return o_proj_->forward(joined_heads(attention(q, k, v, context.mask, /*scale=*/{}, dropout_, is_training())));
  }

 private:
  SplitHeads projected(const at::Tensor& x, const RopeTable& rope) const {
    if (const at::Tensor qkv = Linear::together(x, {q_proj_.get(), k_proj_.get(), v_proj_.get()}); qkv.defined())
      return split_rotated(qkv, rope, heads_, kv_heads_);
    const auto heads_of = [&](const Linear& projection, std::int64_t heads) {
      return projection.forward(x).view({x.size(0), x.size(1), heads, head_dim_});
    };
    return {apply_rope(heads_of(*q_proj_, heads_), rope), apply_rope(heads_of(*k_proj_, kv_heads_), rope),
            heads_of(*v_proj_, kv_heads_)};
  }

  std::int64_t heads_, kv_heads_, head_dim_;
  double dropout_;
  std::shared_ptr<Linear> q_proj_, k_proj_, v_proj_, o_proj_;
};

/// SwiGLU (Shazeer, GLU Variants Improve Transformer): down(silu(gate(x)) * up(x)).
class LlamaMlp : public torch::nn::Module {
 public:
  explicit LlamaMlp(const spec::Llama& c)
      : gate_proj_(add_child<Linear>(*this, "gate_proj", c.hidden_size, c.intermediate_size, c.mlp_bias)),
        up_proj_(add_child<Linear>(*this, "up_proj", c.hidden_size, c.intermediate_size, c.mlp_bias)),
        down_proj_(add_child<Linear>(*this, "down_proj", c.intermediate_size, c.hidden_size, c.mlp_bias)) {}

  at::Tensor forward(const at::Tensor& x) const {
    if (const at::Tensor both = Linear::together(x, {gate_proj_.get(), up_proj_.get()}); both.defined())
      return down_proj_->forward(swiglu(both));
    return down_proj_->forward(swiglu(gate_proj_->forward(x), up_proj_->forward(x)));
  }

 private:
  std::shared_ptr<Linear> gate_proj_, up_proj_, down_proj_;
};

LlamaDecoderLayer::LlamaDecoderLayer(const spec::Llama& c)
    : self_attn_(add_child<LlamaAttention>(*this, "self_attn", c)),
      mlp_(add_child<LlamaMlp>(*this, "mlp", c)),
      input_layernorm_(add_child<RmsNorm>(*this, "input_layernorm", c.hidden_size, c.rms_norm_eps)),
      post_attention_layernorm_(add_child<RmsNorm>(*this, "post_attention_layernorm", c.hidden_size, c.rms_norm_eps)) {}

at::Tensor LlamaDecoderLayer::forward(at::Tensor x, const DecoderContext& context, KeyValues* cached) const {
  // The lambdas copy the context, because a recomputing wrapper may call them after the model's own forward has
  // returned. A cache is used without gradients only, and then nothing is recomputed.
  return call(wrapper, std::move(x), [this, context, cached](const at::Tensor& in) {
    const Tensors attended = attention_wrapper({in}, [this, context, cached](Tensors a) {
      const Normed normed = input_layernorm_->beside(a[0]);
      return Tensors{normed.sum, self_attn_->forward(normed.norm, context, cached)};
    });
    return mlp_wrapper(attended, [this](Tensors m) {
      const Normed normed = post_attention_layernorm_->of_sum(m[0], m[1]);
      return Tensors{normed.sum + mlp_->forward(normed.norm)};
    })[0];
  });
}

LlamaModel::LlamaModel(const spec::Llama& c)
    : embedding(add_child<TokenEmbedding>(*this, "embed_tokens", c.vocab_size, c.hidden_size)), config_(c) {
  layers = add_list<LlamaDecoderLayer>(*this, "layers", c.num_hidden_layers, c);
  final_norm = add_child<RmsNorm>(*this, "norm", c.hidden_size, c.rms_norm_eps);
}

at::Tensor LlamaModel::forward(const Rows& rows, Cache* cache) const {
  const DecoderContext context = context_of("llama", rows, cache, config_.max_position_embeddings, rope_of(config_),
                                            embedding->weight.scalar_type());
  at::Tensor x = embedding->forward(rows.ids);
  for (std::size_t i = 0; i < layers.size(); ++i) {
    x = layers[i]->forward(x, context, cache == nullptr ? nullptr : &(*cache)[i]);
  }
  return x;
}

LlamaForCausalLm::LlamaForCausalLm(const spec::Llama& config) : CausalModelOf(checked(config), "model", "lm_head") {}

}  // namespace worker
