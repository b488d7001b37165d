#include "opt/model.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <c10/util/Exception.h>

#include <string>
#include <utility>

#include "spec/tables/model_rules.h"
#include "worker/models/config_members.h"
#include "worker/models/layers/attention.h"
#include "worker/models/layers/layers.h"

namespace worker {
namespace {

/// The table of positions begins with two rows that no token has.
constexpr std::int64_t kUnusedPositions = 2;
constexpr double kNormEps = 1e-5;

void check_opt(const spec::Opt& model) {
  check_sizes({{"vocab_size", model.vocab_size},
               {"hidden_size", model.hidden_size},
               {"ffn_dim", model.ffn_dim},
               {"num_hidden_layers", model.num_hidden_layers},
               {"num_attention_heads", model.num_attention_heads},
               {"max_position_embeddings", model.max_position_embeddings}});
  std::vector<spec::Conflict> conflicts;
  spec::want_even_heads(model.hidden_size, model.num_attention_heads, conflicts);
  check_no_conflict(conflicts);
}

}  // namespace

OptAttention::OptAttention(const spec::Opt& c) : heads_(c.num_attention_heads), head_dim_(c.head_size()) {
  const auto projection = [&](const char* name) {
    return register_module(name, std::make_shared<Linear>(c.hidden_size, c.hidden_size, /*has_bias=*/true));
  };
  k_proj_ = projection("k_proj");
  v_proj_ = projection("v_proj");
  q_proj_ = projection("q_proj");
  out_proj_ = projection("out_proj");
}

at::Tensor OptAttention::forward(const at::Tensor& x, const Mask& mask, KeyValues* cached) const {
  const auto batch = x.size(0), positions = x.size(1);
  const auto by_heads = [&](const at::Tensor& all) {
    return all.view({batch, positions, heads_, head_dim_}).transpose(1, 2);
  };
  const at::Tensor q = by_heads(q_proj_->forward(x));
  at::Tensor k = by_heads(k_proj_->forward(x)), v = by_heads(v_proj_->forward(x));
  if (cached != nullptr) {
    cached->append(k, v);
    k = cached->all_keys();
    v = cached->all_values();
  }
  const at::Tensor out = attention(q, k, v, mask, /*scale=*/{}, /*dropout=*/0, is_training());
  return out_proj_->forward(out.transpose(1, 2).reshape({batch, positions, heads_ * head_dim_}));
}

OptLayer::OptLayer(const spec::Opt& c)
    : dropout_(c.dropout),
      self_attn_(register_module("self_attn", std::make_shared<OptAttention>(c))),
      self_attn_layer_norm_(
          register_module("self_attn_layer_norm", std::make_shared<LayerNorm>(c.hidden_size, kNormEps))),
      final_layer_norm_(register_module("final_layer_norm", std::make_shared<LayerNorm>(c.hidden_size, kNormEps))),
      fc1_(register_module("fc1", std::make_shared<Linear>(c.hidden_size, c.ffn_dim, /*has_bias=*/true))),
      fc2_(register_module("fc2", std::make_shared<Linear>(c.ffn_dim, c.hidden_size, /*has_bias=*/true))) {}

at::Tensor OptLayer::forward(at::Tensor x, const Mask& mask, KeyValues* cached) const {
  // The lambdas copy the mask, because a recomputing wrapper may call them after the model's own forward has returned.
  return call(wrapper, std::move(x), [this, mask, cached](const at::Tensor& in) {
    const at::Tensor mid = in + call(attention_wrapper, in, [this, mask, cached](const at::Tensor& a) {
                             const at::Tensor out =
                                 self_attn_->forward(self_attn_layer_norm_->forward(a), mask, cached);
                             return drop_out(out, dropout_, is_training());
                           });
    return mid + call(mlp_wrapper, mid, [this](const at::Tensor& m) {
             const at::Tensor inside = activate(Activation::kRelu, fc1_->forward(final_layer_norm_->forward(m)));
             return drop_out(fc2_->forward(inside), dropout_, is_training());
           });
  });
}

OptForCausalLm::OptForCausalLm(const spec::Opt& config) : config_(config) {
  check_opt(config_);
  const auto child = [](torch::nn::Module& of, const std::string& name) {
    return of.register_module(name, std::make_shared<torch::nn::Module>());
  };
  const auto model = child(*this, "model"), decoder = child(*model, "decoder");
  const std::int64_t positions = config_.max_position_embeddings + kUnusedPositions;
  embed_tokens_ =
      decoder->register_module("embed_tokens", std::make_shared<Embedding>(config_.vocab_size, config_.hidden_size));
  embed_positions_ =
      decoder->register_module("embed_positions", std::make_shared<Embedding>(positions, config_.hidden_size));
  final_layer_norm_ =
      decoder->register_module("final_layer_norm", std::make_shared<LayerNorm>(config_.hidden_size, kNormEps));
  const auto list = child(*decoder, "layers");
  for (std::int64_t i = 0; i < config_.num_hidden_layers; ++i)
    layers_.push_back(list->register_module(std::to_string(i), std::make_shared<OptLayer>(config_)));
}

Cache OptForCausalLm::cache(std::int64_t batch, std::int64_t capacity, at::ScalarType dtype, at::Device device) const {
  return empty_cache(config_.num_hidden_layers, {batch, config_.num_attention_heads, capacity, config_.head_size()},
                     at::TensorOptions(dtype).device(device));
}

std::vector<std::shared_ptr<Block>> OptForCausalLm::blocks() const {
  return {layers_.begin(), layers_.end()};
}

at::Tensor OptForCausalLm::hidden(const Rows& rows, Cache* cache) const {
  const at::Tensor& ids = rows.ids;
  const std::int64_t begin = cache == nullptr ? 0 : cache->front().length, end = begin + ids.size(1);
  TORCH_CHECK(end <= config_.max_position_embeddings, "opt: got ", end,
              " positions; want at most max_position_embeddings = ", config_.max_position_embeddings);
  const at::Tensor places =
      rows.positions.defined() ? rows.positions : at::arange(begin, end, ids.options()).expand_as(ids);
  at::Tensor x = drop_out(embed_tokens_->forward(ids) + embed_positions_->forward(places + kUnusedPositions),
                          config_.dropout, is_training());
  const Mask mask = mask_of(rows, cache);
  for (std::size_t i = 0; i < layers_.size(); ++i)
    x = layers_[i]->forward(x, mask, cache == nullptr ? nullptr : &(*cache)[i]);
  return final_layer_norm_->forward(x);
}

Factors OptForCausalLm::head(const at::Tensor& hidden) const {
  return {hidden, embed_tokens_->weight};
}

}  // namespace worker
