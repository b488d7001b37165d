#include "models/llama.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/rms_norm.h>
#include <ATen/ops/scaled_dot_product_attention.h>

#include <stdexcept>
#include <string>

#include "models/head_loss.h"
#include "models/ops.h"

namespace worker {
namespace {

at::Tensor uninitialised(at::IntArrayRef shape) {
  return at::empty(shape, at::kFloat);
}

/// Throws std::invalid_argument when the sizes contradict each other.
void check(const schema::Llama& model) {
  const std::pair<const char*, std::int64_t> sizes[] = {{"vocab_size", model.vocab_size},
                                                        {"hidden_size", model.hidden_size},
                                                        {"intermediate_size", model.intermediate_size},
                                                        {"num_hidden_layers", model.num_hidden_layers},
                                                        {"num_attention_heads", model.num_attention_heads},
                                                        {"num_key_value_heads", model.num_key_value_heads},
                                                        {"max_position_embeddings", model.max_position_embeddings}};
  for (const auto& [key, value] : sizes) {
    if (value >= 1) continue;
    throw std::invalid_argument(std::string("model.") + key + " = " + std::to_string(value) +
                                ": want a whole number of at least 1");
  }
  for (const auto& conflict : schema::conflicts_of(model)) {
    throw std::invalid_argument(conflict.key + ": " + conflict.want + "; " + conflict.remedy);
  }
}

}  // namespace

RmsNorm::RmsNorm(std::int64_t size, double eps)
    : weight(register_parameter("weight", uninitialised({size}))), eps_(eps) {}

at::Tensor RmsNorm::forward(const at::Tensor& x) const {
  return at::rms_norm(x, weight.sizes(), weight, eps_);
}

Linear::Linear(std::int64_t in, std::int64_t out) : weight(register_parameter("weight", uninitialised({out, in}))) {}

at::Tensor Linear::forward(const at::Tensor& x) const {
  return worker::linear(x, weight);
}

Embedding::Embedding(std::int64_t count, std::int64_t size)
    : weight(register_parameter("weight", uninitialised({count, size}))) {}

at::Tensor Embedding::forward(const at::Tensor& ids) const {
  return worker::embedding(weight, ids);
}

LlamaAttention::LlamaAttention(const schema::Llama& c)
    : heads_(c.num_attention_heads),
      kv_heads_(c.num_key_value_heads),
      head_dim_(c.head_dim()),
      q_proj_(register_module("q_proj", std::make_shared<Linear>(c.hidden_size, heads_ * head_dim_))),
      k_proj_(register_module("k_proj", std::make_shared<Linear>(c.hidden_size, kv_heads_ * head_dim_))),
      v_proj_(register_module("v_proj", std::make_shared<Linear>(c.hidden_size, kv_heads_ * head_dim_))),
      o_proj_(register_module("o_proj", std::make_shared<Linear>(heads_ * head_dim_, c.hidden_size))) {}

at::Tensor LlamaAttention::forward(const at::Tensor& x, const RopeTable& rope) const {
  const auto batch = x.size(0), positions = x.size(1);
  const auto split = [&](const at::Tensor& t, std::int64_t heads) {
    return t.view({batch, positions, heads, head_dim_});
  };
  const at::Tensor q = apply_rope(split(q_proj_->forward(x), heads_), rope).transpose(1, 2);
  const at::Tensor k = apply_rope(split(k_proj_->forward(x), kv_heads_), rope).transpose(1, 2);
  const at::Tensor v = split(v_proj_->forward(x), kv_heads_).transpose(1, 2);
  // Query head h reads key/value head h / (heads / kv_heads).
  const at::Tensor out = at::scaled_dot_product_attention(q, k, v, {}, /*dropout_p=*/0.0, /*is_causal=*/true,
                                                          /*scale=*/{}, /*enable_gqa=*/kv_heads_ != heads_);
  return o_proj_->forward(out.transpose(1, 2).reshape({batch, positions, heads_ * head_dim_}));
}

LlamaMlp::LlamaMlp(const schema::Llama& c)
    : gate_proj_(register_module("gate_proj", std::make_shared<Linear>(c.hidden_size, c.intermediate_size))),
      up_proj_(register_module("up_proj", std::make_shared<Linear>(c.hidden_size, c.intermediate_size))),
      down_proj_(register_module("down_proj", std::make_shared<Linear>(c.intermediate_size, c.hidden_size))) {}

at::Tensor LlamaMlp::forward(const at::Tensor& x) const {
  return down_proj_->forward(swiglu(gate_proj_->forward(x), up_proj_->forward(x)));
}

LlamaDecoderLayer::LlamaDecoderLayer(const schema::Llama& c)
    : self_attn_(register_module("self_attn", std::make_shared<LlamaAttention>(c))),
      mlp_(register_module("mlp", std::make_shared<LlamaMlp>(c))),
      input_layernorm_(register_module("input_layernorm", std::make_shared<RmsNorm>(c.hidden_size, c.rms_norm_eps))),
      post_attention_layernorm_(
          register_module("post_attention_layernorm", std::make_shared<RmsNorm>(c.hidden_size, c.rms_norm_eps))) {}

at::Tensor LlamaDecoderLayer::forward(at::Tensor x, const RopeTable& rope) const {
  // The lambdas copy the table, because a recomputing wrapper may call them after the model's own forward has returned.
  return call(wrapper, std::move(x), [this, rope](const at::Tensor& in) {
    const at::Tensor mid = call(attention_wrapper, in, [this, rope](const at::Tensor& a) {
      return a + self_attn_->forward(input_layernorm_->forward(a), rope);
    });
    return call(mlp_wrapper, mid,
                [this](const at::Tensor& m) { return m + mlp_->forward(post_attention_layernorm_->forward(m)); });
  });
}

LlamaModel::LlamaModel(const schema::Llama& c)
    : embed_tokens(register_module("embed_tokens", std::make_shared<Embedding>(c.vocab_size, c.hidden_size))),
      config_(c) {
  const auto list = register_module("layers", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = 0; i < c.num_hidden_layers; ++i) {
    layers.push_back(list->register_module(std::to_string(i), std::make_shared<LlamaDecoderLayer>(c)));
  }
  norm = register_module("norm", std::make_shared<RmsNorm>(c.hidden_size, c.rms_norm_eps));
}

at::Tensor LlamaModel::forward(const at::Tensor& ids) const {
  TORCH_CHECK(ids.dim() == 2 && ids.size(1) <= config_.max_position_embeddings, "llama: got token ids of shape ",
              ids.sizes(),
              "; want [batch, positions] with at most max_position_embeddings = ", config_.max_position_embeddings,
              " positions");
  at::Tensor x = embed_tokens->forward(ids);
  const RopeTable rope = rope_table(ids.size(1), config_.head_dim(), config_.rope_theta, x.scalar_type(), ids.device());
  for (const auto& layer : layers) x = layer->forward(x, rope);
  return norm->forward(x);
}

LlamaForCausalLm::LlamaForCausalLm(const schema::Llama& config) : config_(config) {
  check(config_);
  model_ = register_module("model", std::make_shared<LlamaModel>(config_));
  if (!config_.tie_word_embeddings) {
    lm_head_ = register_module("lm_head", std::make_shared<Linear>(config_.hidden_size, config_.vocab_size));
  }
}

void LlamaForCausalLm::draw(const std::string& name, const at::Tensor& values, at::Generator& random) const {
  if (name.ends_with("norm.weight")) {
    values.fill_(1.0);
  } else {
    values.normal_(0.0, config_.initializer_range, random);
  }
}

const at::Tensor& LlamaForCausalLm::head() const {
  return lm_head_ ? lm_head_->weight : model_->embed_tokens->weight;
}

at::Tensor LlamaForCausalLm::forward(at::Tensor ids) const {
  return call(wrapper, std::move(ids),
              [this](const at::Tensor& in) { return worker::linear(model_->forward(in), head()); });
}

at::Tensor LlamaForCausalLm::loss(at::Tensor ids, const at::Tensor& targets) const {
  return call(wrapper, std::move(ids), [this, targets](const at::Tensor& in) {
    return linear_cross_entropy(model_->forward(in), head(), targets);
  });
}

}  // namespace worker
