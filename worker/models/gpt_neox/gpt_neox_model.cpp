#include "worker/models/gpt_neox/gpt_neox_model.h"

#include <ATen/TensorOperators.h>

#include <utility>

#include "worker/models/config_members.h"

namespace worker {
namespace {

/// Throws std::invalid_argument when the sizes contradict each other.
const spec::GptNeoX& checked(const spec::GptNeoX& model) {
  check_sizes({{"vocab_size", model.vocab_size},
               {"hidden_size", model.hidden_size},
               {"intermediate_size", model.intermediate_size},
               {"num_hidden_layers", model.num_hidden_layers},
               {"num_attention_heads", model.num_attention_heads},
               {"max_position_embeddings", model.max_position_embeddings}});
  check_no_conflict(spec::conflicts_of(model));
  return model;
}

}  // namespace

/// Self-attention with one projection for queries, keys and values. Its rows are packed by heads: [heads, 3, head_dim].
class GptNeoXAttention : public torch::nn::Module {
 public:
  explicit GptNeoXAttention(const spec::GptNeoX& c)
      : heads_(c.num_attention_heads),
        head_dim_(c.head_size()),
        dropout_(c.attention_dropout),
        query_key_value_(
            add_child<Linear>(*this, "query_key_value", c.hidden_size, 3 * c.hidden_size, c.attention_bias)),
        dense_(add_child<Linear>(*this, "dense", c.hidden_size, c.hidden_size, c.attention_bias)) {}

  /// [batch, positions, hidden] -> [batch, positions, hidden]. Reads and extends `cached` where it is not null.
  at::Tensor forward(const at::Tensor& x, const DecoderContext& context, KeyValues* cached) const {
    const at::Tensor packed = query_key_value_->forward(x).view({x.size(0), x.size(1), heads_, 3 * head_dim_});
    const auto parts = packed.chunk(3, -1);
    const at::Tensor q = apply_rope(parts[0], context.rope).transpose(1, 2);
    at::Tensor k = apply_rope(parts[1], context.rope).transpose(1, 2), v = parts[2].transpose(1, 2);
    use_cache(cached, k, v);
    return dense_->forward(joined_heads(attention(q, k, v, context.mask, /*scale=*/{}, dropout_, is_training())));
  }

 private:
  std::int64_t heads_, head_dim_;
  double dropout_;
  std::shared_ptr<Linear> query_key_value_, dense_;
};

/// down(act(up(x))), both with biases.
class GptNeoXMlp : public torch::nn::Module {
 public:
  explicit GptNeoXMlp(const spec::GptNeoX& c)
      : act_(activation_of(c.hidden_act)),
        dense_h_to_4h_(add_child<Linear>(*this, "dense_h_to_4h", c.hidden_size, c.intermediate_size, true)),
        dense_4h_to_h_(add_child<Linear>(*this, "dense_4h_to_h", c.intermediate_size, c.hidden_size, true)) {}

  at::Tensor forward(const at::Tensor& x) const {
    return dense_4h_to_h_->forward(activate(act_, dense_h_to_4h_->forward(x)));
  }

 private:
  Activation act_;
  std::shared_ptr<Linear> dense_h_to_4h_, dense_4h_to_h_;
};

GptNeoXLayer::GptNeoXLayer(const spec::GptNeoX& c)
    : parallel_(c.use_parallel_residual),
      dropout_(c.hidden_dropout),
      input_layernorm_(add_child<LayerNorm>(*this, "input_layernorm", c.hidden_size, c.layer_norm_eps)),
      post_attention_layernorm_(
          add_child<LayerNorm>(*this, "post_attention_layernorm", c.hidden_size, c.layer_norm_eps)),
      attention_(add_child<GptNeoXAttention>(*this, "attention", c)),
      mlp_(add_child<GptNeoXMlp>(*this, "mlp", c)) {}

at::Tensor GptNeoXLayer::forward(at::Tensor x, const DecoderContext& context, KeyValues* cached) const {
  // The lambdas copy the context, because a recomputing wrapper may call them after the model's own forward has
  // returned. A cache is used without gradients only, and then nothing is recomputed.
  return call(wrapper, std::move(x), [this, context, cached](const at::Tensor& in) {
    const at::Tensor attended = call(attention_wrapper, in, [this, context, cached](const at::Tensor& a) {
      return drop_out(attention_->forward(input_layernorm_->forward(a), context, cached), dropout_, is_training());
    });
    const auto feed_forward = [this](const at::Tensor& m) {
      return drop_out(mlp_->forward(post_attention_layernorm_->forward(m)), dropout_, is_training());
    };
    if (parallel_) return call(mlp_wrapper, in, feed_forward) + attended + in;
    const at::Tensor mid = attended + in;
    return call(mlp_wrapper, mid, feed_forward) + mid;
  });
}

GptNeoXModel::GptNeoXModel(const spec::GptNeoX& c)
    : embedding(add_child<TokenEmbedding>(*this, "embed_in", c.vocab_size, c.hidden_size)), config_(c) {
  layers = add_list<GptNeoXLayer>(*this, "layers", c.num_hidden_layers, c);
  final_norm = add_child<LayerNorm>(*this, "final_layer_norm", c.hidden_size, c.layer_norm_eps);
}

at::Tensor GptNeoXModel::forward(const Rows& rows, Cache* cache) const {
  const RopeOptions rope{.dim = config_.rotary_size(), .theta = config_.rotary_emb_base};
  const DecoderContext context =
      context_of("gpt_neox", rows, cache, config_.max_position_embeddings, rope, embedding->weight.scalar_type());
  at::Tensor x = drop_out(embedding->forward(rows.ids), config_.hidden_dropout, is_training());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    x = layers[i]->forward(x, context, cache == nullptr ? nullptr : &(*cache)[i]);
  }
  return x;
}

GptNeoXForCausalLm::GptNeoXForCausalLm(const spec::GptNeoX& config)
    : CausalModelOf(checked(config), "gpt_neox", "embed_out") {}

}  // namespace worker
