#include "worker/models/gpt_neox/gpt_neox_model.h"

#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "worker/models/config_members.h"
#include "worker/models/layers/attention.h"
#include "worker/models/layers/layers.h"

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

GptNeoXAttention::GptNeoXAttention(const spec::GptNeoX& c)
    : heads_(c.num_attention_heads),
      head_dim_(c.head_size()),
      dropout_(c.attention_dropout),
      query_key_value_(register_module("query_key_value",
                                       std::make_shared<Linear>(c.hidden_size, 3 * c.hidden_size, c.attention_bias))),
      dense_(register_module("dense", std::make_shared<Linear>(c.hidden_size, c.hidden_size, c.attention_bias))) {}

at::Tensor GptNeoXAttention::forward(const at::Tensor& x, const GptNeoXContext& context, KeyValues* cached) const {
  const auto batch = x.size(0), positions = x.size(1);
  const auto parts = query_key_value_->forward(x).view({batch, positions, heads_, 3 * head_dim_}).chunk(3, -1);
  const at::Tensor q = apply_rope(parts[0], context.rope).transpose(1, 2);
  at::Tensor k = apply_rope(parts[1], context.rope).transpose(1, 2);
  at::Tensor v = parts[2].transpose(1, 2);
  if (cached != nullptr) {
    cached->append(k, v);
    k = cached->all_keys();
    v = cached->all_values();
  }
  const at::Tensor out = attention(q, k, v, context.mask, /*scale=*/{}, dropout_, is_training());
  return dense_->forward(out.transpose(1, 2).reshape({batch, positions, heads_ * head_dim_}));
}

GptNeoXMlp::GptNeoXMlp(const spec::GptNeoX& c)
    : act_(activation_of(c.hidden_act)),
      dense_h_to_4h_(
          register_module("dense_h_to_4h", std::make_shared<Linear>(c.hidden_size, c.intermediate_size, true))),
      dense_4h_to_h_(
          register_module("dense_4h_to_h", std::make_shared<Linear>(c.intermediate_size, c.hidden_size, true))) {}

at::Tensor GptNeoXMlp::forward(const at::Tensor& x) const {
  return dense_4h_to_h_->forward(activate(act_, dense_h_to_4h_->forward(x)));
}

GptNeoXLayer::GptNeoXLayer(const spec::GptNeoX& c)
    : parallel_(c.use_parallel_residual),
      dropout_(c.hidden_dropout),
      input_layernorm_(
          register_module("input_layernorm", std::make_shared<LayerNorm>(c.hidden_size, c.layer_norm_eps))),
      post_attention_layernorm_(
          register_module("post_attention_layernorm", std::make_shared<LayerNorm>(c.hidden_size, c.layer_norm_eps))),
      attention_(register_module("attention", std::make_shared<GptNeoXAttention>(c))),
      mlp_(register_module("mlp", std::make_shared<GptNeoXMlp>(c))) {}

at::Tensor GptNeoXLayer::forward(at::Tensor x, const GptNeoXContext& context, KeyValues* cached) const {
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
    : config_(c), embed_in_(register_module("embed_in", std::make_shared<Embedding>(c.vocab_size, c.hidden_size))) {
  const auto list = register_module("layers", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) {
    layers.push_back(list->register_module(std::to_string(i), std::make_shared<GptNeoXLayer>(c)));
  }
  final_layer_norm = register_module("final_layer_norm", std::make_shared<LayerNorm>(c.hidden_size, c.layer_norm_eps));
}

at::Tensor GptNeoXModel::forward(const Rows& rows, Cache* cache) const {
  const at::Tensor& ids = rows.ids;
  const std::int64_t begin = cache == nullptr ? 0 : cache->front().length;
  TORCH_CHECK(ids.dim() == 2 && begin + ids.size(1) <= config_.max_position_embeddings,
              "gpt_neox: got token ids of shape ", ids.sizes(), begin > 0 ? " after cached ones" : "",
              "; want [batch, positions] with at most max_position_embeddings = ", config_.max_position_embeddings,
              " positions");
  at::Tensor x = drop_out(embed_in_->forward(ids), config_.hidden_dropout, is_training());
  const RopeOptions rope{.dim = config_.rotary_size(), .theta = config_.rotary_emb_base};
  const GptNeoXContext context{rows.positions.defined()
                                   ? rope_table(rows.positions, rope, x.scalar_type())
                                   : rope_table(begin, ids.size(1), rope, x.scalar_type(), ids.device()),
                               mask_of(rows, cache)};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    x = layers[i]->forward(x, context, cache == nullptr ? nullptr : &(*cache)[i]);
  }
  return final_layer_norm->forward(x);
}

GptNeoXForCausalLm::GptNeoXForCausalLm(const spec::GptNeoX& config)
    : CausalModelOf(checked(config), "gpt_neox", "embed_out") {}

}  // namespace worker
