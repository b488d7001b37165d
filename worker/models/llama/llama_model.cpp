#include "worker/models/llama/llama_model.h"

#include <ATen/TensorOperators.h>
#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "worker/models/config_members.h"
#include "worker/models/layers/attention.h"
#include "worker/models/ops.h"

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

LlamaAttention::LlamaAttention(const spec::Llama& c)
    : heads_(c.num_attention_heads),
      kv_heads_(c.num_key_value_heads),
      head_dim_(c.head_size()),
      dropout_(c.attention_dropout) {
  const auto projection = [&](const char* name, std::int64_t in, std::int64_t out) {
    return register_module(name, std::make_shared<Linear>(in, out, c.attention_bias));
  };
  q_proj_ = projection("q_proj", c.hidden_size, heads_ * head_dim_);
  k_proj_ = projection("k_proj", c.hidden_size, kv_heads_ * head_dim_);
  v_proj_ = projection("v_proj", c.hidden_size, kv_heads_ * head_dim_);
  o_proj_ = projection("o_proj", heads_ * head_dim_, c.hidden_size);
}

at::Tensor LlamaAttention::forward(const at::Tensor& x, const LlamaContext& context, KeyValues* cached) const {
  const auto batch = x.size(0), positions = x.size(1);
  const auto split = [&](const at::Tensor& t, std::int64_t heads) {
    return t.view({batch, positions, heads, head_dim_});
  };
  const at::Tensor q = apply_rope(split(q_proj_->forward(x), heads_), context.rope).transpose(1, 2);
  at::Tensor k = apply_rope(split(k_proj_->forward(x), kv_heads_), context.rope).transpose(1, 2);
  at::Tensor v = split(v_proj_->forward(x), kv_heads_).transpose(1, 2);
  if (cached != nullptr) {
    cached->append(k, v);
    k = cached->all_keys();
    v = cached->all_values();
  }
  const at::Tensor out = attention(q, k, v, context.mask, /*scale=*/{}, dropout_, is_training());
  return o_proj_->forward(out.transpose(1, 2).reshape({batch, positions, heads_ * head_dim_}));
}

LlamaMlp::LlamaMlp(const spec::Llama& c)
    : gate_proj_(
          register_module("gate_proj", std::make_shared<Linear>(c.hidden_size, c.intermediate_size, c.mlp_bias))),
      up_proj_(register_module("up_proj", std::make_shared<Linear>(c.hidden_size, c.intermediate_size, c.mlp_bias))),
      down_proj_(
          register_module("down_proj", std::make_shared<Linear>(c.intermediate_size, c.hidden_size, c.mlp_bias))) {}

at::Tensor LlamaMlp::forward(const at::Tensor& x) const {
  return down_proj_->forward(swiglu(gate_proj_->forward(x), up_proj_->forward(x)));
}

LlamaDecoderLayer::LlamaDecoderLayer(const spec::Llama& c)
    : self_attn_(register_module("self_attn", std::make_shared<LlamaAttention>(c))),
      mlp_(register_module("mlp", std::make_shared<LlamaMlp>(c))),
      input_layernorm_(register_module("input_layernorm", std::make_shared<RmsNorm>(c.hidden_size, c.rms_norm_eps))),
      post_attention_layernorm_(
          register_module("post_attention_layernorm", std::make_shared<RmsNorm>(c.hidden_size, c.rms_norm_eps))) {}

at::Tensor LlamaDecoderLayer::forward(at::Tensor x, const LlamaContext& context, KeyValues* cached) const {
  // The lambdas copy the context, because a recomputing wrapper may call them after the model's own forward has
  // returned. A cache is used without gradients only, and then nothing is recomputed.
  return call(wrapper, std::move(x), [this, context, cached](const at::Tensor& in) {
    const at::Tensor mid = call(attention_wrapper, in, [this, context, cached](const at::Tensor& a) {
      return a + self_attn_->forward(input_layernorm_->forward(a), context, cached);
    });
    return call(mlp_wrapper, mid,
                [this](const at::Tensor& m) { return m + mlp_->forward(post_attention_layernorm_->forward(m)); });
  });
}

LlamaModel::LlamaModel(const spec::Llama& c)
    : config_(c),
      embed_tokens_(register_module("embed_tokens", std::make_shared<Embedding>(c.vocab_size, c.hidden_size))),
      rope_(rope_of(c)) {
  const auto list = register_module("layers", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) {
    layers.push_back(list->register_module(std::to_string(i), std::make_shared<LlamaDecoderLayer>(c)));
  }
  norm = register_module("norm", std::make_shared<RmsNorm>(c.hidden_size, c.rms_norm_eps));
}

at::Tensor LlamaModel::forward(const Rows& rows, Cache* cache) const {
  const at::Tensor& ids = rows.ids;
  const std::int64_t begin = cache == nullptr ? 0 : cache->front().length;
  TORCH_CHECK(ids.dim() == 2 && begin + ids.size(1) <= config_.max_position_embeddings,
              "llama: got token ids of shape ", ids.sizes(), begin > 0 ? " after cached ones" : "",
              "; want [batch, positions] with at most max_position_embeddings = ", config_.max_position_embeddings,
              " positions");
  at::Tensor x = embed_tokens_->forward(ids);
  const LlamaContext context{rows.positions.defined()
                                 ? rope_table(rows.positions, rope_, x.scalar_type())
                                 : rope_table(begin, ids.size(1), rope_, x.scalar_type(), ids.device()),
                             mask_of(rows, cache)};
  for (std::size_t i = 0; i < layers.size(); ++i) {
    x = layers[i]->forward(x, context, cache == nullptr ? nullptr : &(*cache)[i]);
  }
  return norm->forward(x);
}

LlamaForCausalLm::LlamaForCausalLm(const spec::Llama& config) : CausalModelOf(checked(config), "model", "lm_head") {}

void LlamaForCausalLm::draw(const std::string& name, const at::Tensor& values, at::Generator& random) const {
  draw_normal(name, values, config().initializer_range, random);
}

}  // namespace worker
