#include "worker/models/t5/t5_model.h"

#include <ATen/TensorOperators.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/clamp.h>
#include <ATen/ops/full.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/util/BFloat16.h>
#include <c10/util/Exception.h>

#include <cmath>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>

#include "worker/models/config_members.h"
#include "worker/models/fused_ops.h"
#include "worker/models/head_loss.h"
#include "worker/models/layers/attention.h"
#include "worker/models/layers/layers.h"
#include "worker/models/ops.h"

namespace worker {
namespace {

double t5_lowest(at::ScalarType dtype) {
  if (dtype == at::kHalf) return std::numeric_limits<c10::Half>::lowest();
  if (dtype == at::kBFloat16) return std::numeric_limits<c10::BFloat16>::lowest();
  return std::numeric_limits<float>::lowest();
}

}  // namespace

at::Tensor t5_buckets(const at::Tensor& relative, bool bidirectional, std::int64_t buckets, std::int64_t max_distance) {
  if (bidirectional) buckets /= 2;
  const std::int64_t exact = buckets / 2;
  const at::Tensor distance = bidirectional ? relative.abs() : relative.clamp_max(0).neg();
  // In fp32 and in this order, as Hugging Face does it, because the result is cut to whole numbers.
  const at::Tensor far = (distance.clamp_min(1).to(at::kFloat) / static_cast<double>(exact)).log() /
                         std::log(static_cast<double>(max_distance) / static_cast<double>(exact)) * (buckets - exact);
  const at::Tensor of_far = (far.to(at::kLong) + exact).clamp_max(buckets - 1);
  const at::Tensor out = at::where(distance < exact, distance, of_far);
  return bidirectional ? out + (relative > 0).to(at::kLong) * buckets : out;
}

T5RelativeBias::T5RelativeBias(const spec::T5& config, bool bidirectional)
    : weight(register_parameter("weight", uninitialised({config.relative_attention_num_buckets, config.num_heads}))),
      bidirectional_(bidirectional),
      max_distance_(config.relative_attention_max_distance) {}

at::Tensor T5RelativeBias::forward(std::int64_t begin, std::int64_t queries, std::int64_t keys) const {
  // The rows of the result are one row of queries + keys distances, each a place further to the left. So the table is
  // asked once for each distance and not once for each pair. A copy of that row for each query, read in steps of one
  // element less than it has, is the result, and autograd adds up its diagonals.
  const std::int64_t width = queries + keys, heads = weight.size(1), first = 1 - queries - begin;
  const at::Tensor distances = at::arange(first, first + width, at::TensorOptions(at::kLong).device(weight.device()));
  const at::Tensor of_distance =
      worker::embedding(weight, t5_buckets(distances, bidirectional_, weight.size(0), max_distance_)).t();
  const at::Tensor copies = of_distance.unsqueeze(1).expand({heads, queries, width}).reshape({heads, queries * width});
  return copies.narrow(1, queries - 1, queries * (width - 1)).view({1, heads, queries, width - 1}).narrow(3, 0, keys);
}

at::Tensor t5_penalty(const at::Tensor& sees, at::ScalarType dtype) {
  return at::zeros(sees.sizes(), sees.options().dtype(dtype)).masked_fill_(sees.logical_not(), t5_lowest(dtype));
}

namespace {

/// Throws std::invalid_argument when the sizes contradict each other.
void check_t5(const spec::T5& model) {
  check_sizes({{"vocab_size", model.vocab_size},
               {"d_model", model.d_model},
               {"d_kv", model.d_kv},
               {"d_ff", model.d_ff},
               {"num_layers", model.num_layers},
               {"num_decoder_layers", model.num_decoder_layers},
               {"num_heads", model.num_heads}});
  if (model.relative_attention_num_buckets < 4)
    throw std::invalid_argument(
        "model.relative_attention_num_buckets = " + std::to_string(model.relative_attention_num_buckets) +
        ": want a whole number of at least 4");
  check_no_conflict(spec::conflicts_of(model));
}

void check_t5_source(const at::Tensor& ids, const at::Tensor& attention_mask) {
  TORCH_CHECK(ids.dim() == 2, "t5: got token ids of shape ", ids.sizes(), "; want [batch, positions]");
  TORCH_CHECK(!attention_mask.defined() || attention_mask.sizes() == ids.sizes(), "t5: the attention mask is ",
              attention_mask.sizes(), " and the token ids are ", ids.sizes(), "; want equal shapes");
}

/// fp16 has no numbers for the sums of large T5 models, so infinities become large numbers, as in Hugging Face's T5.
at::Tensor t5_finite(const at::Tensor& x) {
  if (x.scalar_type() != at::kHalf) return x;
  const at::Tensor most =
      at::where(x.isinf().any(), at::scalar_tensor(64504, x.options()), at::scalar_tensor(65504, x.options()));
  return at::clamp(x, -most, most);
}

/// Which of the tokens 0..before + count - 1 the last `count` ones see: bool [1, 1, count, before + count].
at::Tensor t5_causal(std::int64_t before, std::int64_t count, at::Device device) {
  const at::Tensor keys = at::arange(before + count, at::TensorOptions(at::kLong).device(device));
  return (keys.unsqueeze(0) <= keys.narrow(0, before, count).unsqueeze(1)).unsqueeze(0).unsqueeze(0);
}

}  // namespace

T5Attention::T5Attention(const spec::T5& c)
    : heads_(c.num_heads),
      head_dim_(c.d_kv),
      dropout_(c.dropout_rate),
      q_(register_module("q", std::make_shared<Linear>(c.d_model, c.inner_size()))),
      k_(register_module("k", std::make_shared<Linear>(c.d_model, c.inner_size()))),
      v_(register_module("v", std::make_shared<Linear>(c.d_model, c.inner_size()))),
      o_(register_module("o", std::make_shared<Linear>(c.inner_size(), c.d_model))) {}

at::Tensor T5Attention::by_heads(const at::Tensor& x) const {
  return x.view({x.size(0), x.size(1), heads_, head_dim_}).transpose(1, 2);
}

KeyValues T5Attention::keys_and_values(const at::Tensor& tokens) const {
  return {by_heads(k_->forward(tokens)), by_heads(v_->forward(tokens)), tokens.size(1)};
}

at::Tensor T5Attention::forward(const at::Tensor& x, const at::Tensor& keys, const at::Tensor& values,
                                const Mask& mask) const {
  const at::Tensor out =
      attention(by_heads(q_->forward(x)), keys, values, mask, /*scale=*/1.0, dropout_, is_training());
  return o_->forward(out.transpose(1, 2).reshape({x.size(0), x.size(1), heads_ * head_dim_}));
}

T5SelfAttention::T5SelfAttention(const spec::T5& c, bool is_decoder, bool has_bias) : T5Attention(c) {
  if (has_bias)
    relative_attention_bias =
        register_module("relative_attention_bias", std::make_shared<T5RelativeBias>(c, !is_decoder));
}

T5SelfAttentionLayer::T5SelfAttentionLayer(const spec::T5& c, bool is_decoder, bool has_bias)
    : dropout_(c.dropout_rate),
      attention_(register_module("SelfAttention", std::make_shared<T5SelfAttention>(c, is_decoder, has_bias))),
      layer_norm_(register_module("layer_norm", std::make_shared<RmsNorm>(c.d_model, c.layer_norm_epsilon))) {}

Tensors T5SelfAttentionLayer::forward(const at::Tensor& x, at::Tensor bias, const T5Context& context,
                                      KeyValues* cached) const {
  const at::Tensor in = layer_norm_->forward(x);
  KeyValues own = attention_->keys_and_values(in);
  if (cached != nullptr) {
    cached->append(own.keys, own.values);
    own = {cached->all_keys(), cached->all_values(), cached->length};
  }
  const bool makes_bias = !bias.defined();
  if (makes_bias) {
    bias = attention_->relative_attention_bias->forward(context.begin, x.size(1), own.length).to(in.scalar_type());
    bias = context.penalty.defined() ? bias + context.penalty : bias.contiguous();
  }
  const at::Tensor out = attention_->forward(in, own.keys, own.values, {.bias = bias, .causal = false});
  at::Tensor sum = t5_finite(x + drop_out(out, dropout_, is_training()));
  return makes_bias ? Tensors{std::move(sum), std::move(bias)} : Tensors{std::move(sum)};
}

T5CrossAttentionLayer::T5CrossAttentionLayer(const spec::T5& c)
    : dropout_(c.dropout_rate),
      attention_(register_module("EncDecAttention", std::make_shared<T5Attention>(c))),
      layer_norm_(register_module("layer_norm", std::make_shared<RmsNorm>(c.d_model, c.layer_norm_epsilon))) {}

at::Tensor T5CrossAttentionLayer::forward(const at::Tensor& x, const at::Tensor& encoded, const Mask& mask,
                                          KeyValues* cached) const {
  KeyValues seen;
  if (cached != nullptr && cached->keys.defined()) {
    seen = *cached;
  } else {
    seen = attention_->keys_and_values(encoded);
    if (cached != nullptr) *cached = seen;
  }
  const at::Tensor out = attention_->forward(layer_norm_->forward(x), seen.keys, seen.values, mask);
  return t5_finite(x + drop_out(out, dropout_, is_training()));
}

T5FeedForward::T5FeedForward(const spec::T5& c) : act_(activation_of(c.activation())), dropout_(c.dropout_rate) {
  in_ = register_module(c.is_gated() ? "wi_0" : "wi", std::make_shared<Linear>(c.d_model, c.d_ff));
  if (c.is_gated()) linear_ = register_module("wi_1", std::make_shared<Linear>(c.d_model, c.d_ff));
  out_ = register_module("wo", std::make_shared<Linear>(c.d_ff, c.d_model));
}

at::Tensor T5FeedForward::forward(const at::Tensor& x) const {
  at::Tensor hidden = in_->forward(x);
  if (!linear_) {
    hidden = activate(act_, hidden);
  } else if (act_ == Activation::kSilu) {
    hidden = swiglu(hidden, linear_->forward(x));
  } else {
    hidden = activate(act_, hidden) * linear_->forward(x);
  }
  hidden = drop_out(hidden, dropout_, is_training());
  return out_->forward(hidden.to(out_->weight.scalar_type())).to(x.scalar_type());
}

T5FeedForwardLayer::T5FeedForwardLayer(const spec::T5& c)
    : dropout_(c.dropout_rate),
      feed_forward_(register_module("DenseReluDense", std::make_shared<T5FeedForward>(c))),
      layer_norm_(register_module("layer_norm", std::make_shared<RmsNorm>(c.d_model, c.layer_norm_epsilon))) {}

at::Tensor T5FeedForwardLayer::forward(const at::Tensor& x) const {
  return t5_finite(x + drop_out(feed_forward_->forward(layer_norm_->forward(x)), dropout_, is_training()));
}

T5Block::T5Block(const spec::T5& c, bool is_decoder, bool has_bias) {
  const auto list = register_module("layer", std::make_shared<torch::nn::Module>());
  self_attention_ = list->register_module("0", std::make_shared<T5SelfAttentionLayer>(c, is_decoder, has_bias));
  if (is_decoder) cross_attention_ = list->register_module("1", std::make_shared<T5CrossAttentionLayer>(c));
  feed_forward_ = list->register_module(is_decoder ? "2" : "1", std::make_shared<T5FeedForwardLayer>(c));
}

Tensors T5Block::parts(const Tensors& in, const T5Context& context, T5BlockCache cached) const {
  Tensors out = attention_wrapper({in[0], in[1]}, [this, context, cached](const Tensors& a) {
    return self_attention_->forward(a[0], a[1], context, cached.self);
  });
  if (cross_attention_) {
    out[0] = attention_wrapper({out[0], in[2]}, [this, context, cached](const Tensors& a) {
      return Tensors{cross_attention_->forward(a[0], a[1], context.cross, cached.cross)};
    })[0];
  }
  out[0] = call(mlp_wrapper, out[0], [this](const at::Tensor& m) { return feed_forward_->forward(m); });
  return out;
}

T5Block::Flow T5Block::forward(Flow flow, const T5Context& context, T5BlockCache cached) const {
  // The lambdas copy the context, because a recomputing wrapper may call them after the model's own forward has
  // returned. A cache is used without gradients only, and then nothing is recomputed.
  Tensors out = wrapper({std::move(flow.x), flow.bias, flow.encoded},
                        [this, context, cached](const Tensors& in) { return parts(in, context, cached); });
  flow.x = std::move(out[0]);
  if (out.size() > 1) flow.bias = std::move(out[1]);
  return flow;
}

T5Stack::T5Stack(const spec::T5& c, bool is_decoder) : dropout_(c.dropout_rate) {
  const auto list = register_module("block", std::make_shared<torch::nn::Module>());
  for (std::int64_t i = 0; i < (is_decoder ? c.num_decoder_layers : c.num_layers); ++i) {
    block.push_back(list->register_module(std::to_string(i), std::make_shared<T5Block>(c, is_decoder, i == 0)));
  }
  final_layer_norm_ = register_module("final_layer_norm", std::make_shared<RmsNorm>(c.d_model, c.layer_norm_epsilon));
}

at::Tensor T5Stack::forward(const at::Tensor& x, const at::Tensor& encoded, const T5Context& context,
                            T5Cache* cache) const {
  T5Block::Flow flow{x, {}, encoded};
  for (std::size_t i = 0; i < block.size(); ++i) {
    const T5BlockCache cached = cache == nullptr ? T5BlockCache() : T5BlockCache{&cache->self[i], &cache->cross[i]};
    flow = block[i]->forward(std::move(flow), context, cached);
  }
  return drop_out(final_layer_norm_->forward(flow.x), dropout_, is_training());
}

T5ForConditionalGeneration::T5ForConditionalGeneration(const spec::T5& config) : config_(config) {
  check_t5(config_);
  shared_ = register_module("shared", std::make_shared<Embedding>(config_.vocab_size, config_.d_model));
  encoder_ = register_module("encoder", std::make_shared<T5Stack>(config_, /*is_decoder=*/false));
  decoder_ = register_module("decoder", std::make_shared<T5Stack>(config_, /*is_decoder=*/true));
  if (!config_.tie_word_embeddings)
    lm_head_ = register_module("lm_head", std::make_shared<Linear>(config_.d_model, config_.vocab_size));
}

// Masks and ids are captured, because they need no gradient.

at::Tensor T5ForConditionalGeneration::forward(const at::Tensor& ids, const at::Tensor& attention_mask,
                                               const at::Tensor& decoder_ids) const {
  check_t5_source(ids, attention_mask);
  return call(wrapper, ids, [this, attention_mask, decoder_ids](const at::Tensor& in) {
    const at::Tensor encoded = encoded_of(in, attention_mask);
    return worker::linear(decoded_of(decoder_ids, encoded, attention_mask, nullptr), head());
  });
}

at::Tensor T5ForConditionalGeneration::loss(const at::Tensor& ids, const at::Tensor& attention_mask,
                                            const at::Tensor& targets) const {
  check_t5_source(ids, attention_mask);
  return call(wrapper, ids, [this, attention_mask, targets](const at::Tensor& in) {
    const at::Tensor encoded = encoded_of(in, attention_mask);
    return linear_cross_entropy(decoded_of(decoder_inputs(targets), encoded, attention_mask, nullptr), head(), targets);
  });
}

at::Tensor T5ForConditionalGeneration::decoder_inputs(const at::Tensor& targets) const {
  TORCH_CHECK(targets.dim() == 2 && targets.size(1) >= 1, "t5: got targets of shape ", targets.sizes(),
              "; want [batch, positions] with at least one position");
  const at::Tensor start = at::full({targets.size(0), 1}, config_.decoder_start_token_id, targets.options());
  const at::Tensor read = at::cat({start, targets.narrow(1, 0, targets.size(1) - 1)}, 1);
  return read.masked_fill(read == data::order::kNoTarget, config_.pad_token_id);
}

at::Tensor T5ForConditionalGeneration::encode(const at::Tensor& ids, const at::Tensor& attention_mask) const {
  check_t5_source(ids, attention_mask);
  return call(wrapper, ids, [this, attention_mask](const at::Tensor& in) { return encoded_of(in, attention_mask); });
}

at::Tensor T5ForConditionalGeneration::next(const at::Tensor& decoder_ids, const at::Tensor& encoded,
                                            const at::Tensor& attention_mask, T5Cache& cache) const {
  TORCH_CHECK(!at::GradMode::is_enabled(), "next: gradients are recorded; call it under at::NoGradGuard");
  const std::size_t blocks = decoder_->block.size();
  TORCH_CHECK(cache.self.size() == blocks && cache.cross.size() == blocks, "next: the cache has ", cache.self.size(),
              " layers and the decoder ", blocks, "; make it by this model's cache()");
  TORCH_CHECK(encoded.dim() == 3 && decoder_ids.dim() == 2 && encoded.size(0) == decoder_ids.size(0),
              "next: the decoder reads ids of shape ", decoder_ids.sizes(), " and the encoder made ", encoded.sizes(),
              "; want [batch, n] and [batch, source, d_model]");
  return call(wrapper, decoder_ids, [this, &encoded, &attention_mask, &cache](const at::Tensor& in) {
    const at::Tensor all = decoded_of(in, encoded, attention_mask, &cache);
    return worker::linear(all.narrow(1, in.size(1) - 1, 1), head()).squeeze(1);
  });
}

T5Cache T5ForConditionalGeneration::cache(std::int64_t batch, std::int64_t capacity, at::ScalarType dtype,
                                          at::Device device) const {
  return {empty_cache(config_.num_decoder_layers, {batch, config_.num_heads, capacity, config_.d_kv},
                      at::TensorOptions(dtype).device(device)),
          Cache(decoder_->block.size())};
}

std::vector<std::shared_ptr<Block>> T5ForConditionalGeneration::blocks() const {
  std::vector<std::shared_ptr<Block>> all(encoder_->block.begin(), encoder_->block.end());
  all.insert(all.end(), decoder_->block.begin(), decoder_->block.end());
  return all;
}

const at::Tensor& T5ForConditionalGeneration::head() const {
  return lm_head_ ? lm_head_->weight : shared_->weight;
}

at::Tensor T5ForConditionalGeneration::embedded(const at::Tensor& ids) const {
  return drop_out(shared_->forward(ids), config_.dropout_rate, is_training());
}

at::Tensor T5ForConditionalGeneration::encoded_of(const at::Tensor& ids, const at::Tensor& attention_mask) const {
  const at::Tensor x = embedded(ids);
  T5Context context;
  if (attention_mask.defined()) context.penalty = t5_penalty(padding_mask(attention_mask).bias, x.scalar_type());
  return encoder_->forward(x, {}, context, nullptr);
}

at::Tensor T5ForConditionalGeneration::decoded_of(const at::Tensor& decoder_ids, const at::Tensor& encoded,
                                                  const at::Tensor& attention_mask, T5Cache* cache) const {
  const at::Tensor x = embedded(decoder_ids);
  const std::int64_t count = decoder_ids.size(1);
  T5Context context;
  context.begin = cache == nullptr ? 0 : cache->self.front().length;
  if (count > 1) context.penalty = t5_penalty(t5_causal(context.begin, count, x.device()), x.scalar_type());
  if (attention_mask.defined()) context.cross = padding_mask(attention_mask);
  const at::Tensor out = decoder_->forward(x, encoded, context, cache);
  // A tied head reads smaller numbers, because the table has those of an input.
  return !config_.scales_head() ? out : out * std::pow(static_cast<double>(config_.d_model), -0.5);
}

}  // namespace worker
