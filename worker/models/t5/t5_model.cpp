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
#include "worker/models/ops.h"

namespace worker {

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

double t5_lowest(at::ScalarType dtype) {
  if (dtype == at::kHalf) return std::numeric_limits<c10::Half>::lowest();
  if (dtype == at::kBFloat16) return std::numeric_limits<c10::BFloat16>::lowest();
  return std::numeric_limits<float>::lowest();
}

/// A mask to be added to scores of that dtype: 0 where `sees` (bool) is true, and the lowest finite number elsewhere.
at::Tensor t5_penalty(const at::Tensor& sees, at::ScalarType dtype) {
  return at::zeros(sees.sizes(), sees.options().dtype(dtype)).masked_fill_(sees.logical_not(), t5_lowest(dtype));
}

/// fp16 has no numbers for the sums of large T5 models, so infinities become large numbers, as in Hugging Face's T5.
at::Tensor t5_finite(const at::Tensor& x) {
  if (x.scalar_type() != at::kHalf) return x;
  const at::Tensor most =
      at::where(x.isinf().any(), at::scalar_tensor(64504, x.options()), at::scalar_tensor(65504, x.options()));
  return at::clamp(x, -most, most);
}

}  // namespace

/// The cached keys and values of one block; null where nothing is cached.
struct T5BlockCache {
  KeyValues *self = nullptr, *cross = nullptr;
};

/// Data that every block of a stack shares in one call, without what needs a gradient. Copies are cheap.
struct T5Context {
  std::int64_t begin = 0;  ///< the position of the first token
  at::Tensor penalty;      ///< of t5_penalty(), for self-attention; undefined where a token sees all others
  Mask cross;              ///< which tokens of the encoder the decoder sees
};

/// Attention without a scale: T5's first values of the queries are so much smaller.
class T5Attention : public torch::nn::Module {
 public:
  explicit T5Attention(const spec::T5& c)
      : heads_(c.num_heads),
        dropout_(c.dropout_rate),
        q_(add_child<Linear>(*this, "q", c.d_model, c.inner_size())),
        k_(add_child<Linear>(*this, "k", c.d_model, c.inner_size())),
        v_(add_child<Linear>(*this, "v", c.d_model, c.inner_size())),
        o_(add_child<Linear>(*this, "o", c.inner_size(), c.d_model)) {}

  /// The keys and values of tokens [batch, n, d_model]: [batch, heads, n, d_kv].
  KeyValues keys_and_values(const at::Tensor& tokens) const {
    return {split_heads(k_->forward(tokens), heads_), split_heads(v_->forward(tokens), heads_), tokens.size(1)};
  }

  /// [batch, queries, d_model] -> [batch, queries, d_model].
  at::Tensor forward(const at::Tensor& x, const KeyValues& seen, const Mask& mask) const {
    const at::Tensor q = split_heads(q_->forward(x), heads_);
    return o_->forward(
        joined_heads(attention(q, seen.keys, seen.values, mask, /*scale=*/1.0, dropout_, is_training())));
  }

 private:
  std::int64_t heads_;
  double dropout_;
  std::shared_ptr<Linear> q_, k_, v_, o_;
};

/// Attention of a stack to itself. That of block 0 has the relative bias of all blocks.
class T5SelfAttention : public T5Attention {
 public:
  T5SelfAttention(const spec::T5& c, bool is_decoder, bool has_bias) : T5Attention(c) {
    if (has_bias) relative_attention_bias = add_child<T5RelativeBias>(*this, "relative_attention_bias", c, !is_decoder);
  }

  std::shared_ptr<T5RelativeBias> relative_attention_bias;  ///< null without one
};

/// x + self-attention(norm(x)).
class T5SelfAttentionLayer : public torch::nn::Module {
 public:
  T5SelfAttentionLayer(const spec::T5& c, bool is_decoder, bool has_bias)
      : dropout_(c.dropout_rate),
        attention_(add_child<T5SelfAttention>(*this, "SelfAttention", c, is_decoder, has_bias)),
        layer_norm_(add_child<RmsNorm>(*this, "layer_norm", c.d_model, c.layer_norm_epsilon)) {}

  /// Takes x and the bias, which is undefined for block 0. Returns x, and from block 0 also the bias that it has made:
  /// [batch or 1, heads, queries, keys], with the context's penalty in it.
  Tensors forward(const at::Tensor& x, at::Tensor bias, const T5Context& context, KeyValues* cached) const {
    const at::Tensor in = layer_norm_->forward(x);
    KeyValues own = attention_->keys_and_values(in);
    use_cache(cached, own.keys, own.values);
    const bool makes_bias = !bias.defined();
    if (makes_bias) {
      const std::int64_t keys = own.keys.size(2);
      bias = attention_->relative_attention_bias->forward(context.begin, x.size(1), keys).to(in.scalar_type());
      bias = context.penalty.defined() ? bias + context.penalty : bias.contiguous();
    }
    const at::Tensor out = attention_->forward(in, own, {.bias = bias, .causal = false});
    at::Tensor sum = t5_finite(x + drop_out(out, dropout_, is_training()));
    return makes_bias ? Tensors{std::move(sum), std::move(bias)} : Tensors{std::move(sum)};
  }

 private:
  double dropout_;
  std::shared_ptr<T5SelfAttention> attention_;
  std::shared_ptr<RmsNorm> layer_norm_;
};

/// x + attention of norm(x) to what the encoder made.
class T5CrossAttentionLayer : public torch::nn::Module {
 public:
  explicit T5CrossAttentionLayer(const spec::T5& c)
      : dropout_(c.dropout_rate),
        attention_(add_child<T5Attention>(*this, "EncDecAttention", c)),
        layer_norm_(add_child<RmsNorm>(*this, "layer_norm", c.d_model, c.layer_norm_epsilon)) {}

  at::Tensor forward(const at::Tensor& x, const at::Tensor& encoded, const Mask& mask, KeyValues* cached) const {
    KeyValues seen;
    if (cached != nullptr && cached->keys.defined()) {
      seen = *cached;
    } else {
      seen = attention_->keys_and_values(encoded);
      if (cached != nullptr) *cached = seen;
    }
    const at::Tensor out = attention_->forward(layer_norm_->forward(x), seen, mask);
    return t5_finite(x + drop_out(out, dropout_, is_training()));
  }

 private:
  double dropout_;
  std::shared_ptr<T5Attention> attention_;
  std::shared_ptr<RmsNorm> layer_norm_;
};

/// wo(act(wi(x))), or with a gate wo(act(wi_0(x)) * wi_1(x)) (Shazeer, arXiv 2002.05202). wo may have another dtype
/// than the rest, because its sums overflow in fp16.
class T5FeedForward : public torch::nn::Module {
 public:
  explicit T5FeedForward(const spec::T5& c) : act_(activation_of(c.activation())), dropout_(c.dropout_rate) {
    in_ = add_child<Linear>(*this, c.is_gated() ? "wi_0" : "wi", c.d_model, c.d_ff);
    if (c.is_gated()) linear_ = add_child<Linear>(*this, "wi_1", c.d_model, c.d_ff);
    out_ = add_child<Linear>(*this, "wo", c.d_ff, c.d_model);
  }

  at::Tensor forward(const at::Tensor& x) const {
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

 private:
  Activation act_;
  double dropout_;
  std::shared_ptr<Linear> in_, linear_, out_;  ///< wi or wi_0; wi_1 or null; wo
};

/// x + feed-forward(norm(x)).
class T5FeedForwardLayer : public torch::nn::Module {
 public:
  explicit T5FeedForwardLayer(const spec::T5& c)
      : dropout_(c.dropout_rate),
        feed_forward_(add_child<T5FeedForward>(*this, "DenseReluDense", c)),
        layer_norm_(add_child<RmsNorm>(*this, "layer_norm", c.d_model, c.layer_norm_epsilon)) {}

  at::Tensor forward(const at::Tensor& x) const {
    return t5_finite(x + drop_out(feed_forward_->forward(layer_norm_->forward(x)), dropout_, is_training()));
  }

 private:
  double dropout_;
  std::shared_ptr<T5FeedForward> feed_forward_;
  std::shared_ptr<RmsNorm> layer_norm_;
};

/// A block of the encoder or of the decoder. A decoder block calls both of its attentions through attention_wrapper.
class T5Block : public Block {
 public:
  T5Block(const spec::T5& c, bool is_decoder, bool has_bias) {
    const auto list = add_group(*this, "layer");
    self_attention_ = add_child<T5SelfAttentionLayer>(*list, "0", c, is_decoder, has_bias);
    if (is_decoder) cross_attention_ = add_child<T5CrossAttentionLayer>(*list, "1", c);
    feed_forward_ = add_child<T5FeedForwardLayer>(*list, is_decoder ? "2" : "1", c);
  }

  /// Tensors that go from block to block. `encoded` is undefined in the encoder.
  struct Flow {
    at::Tensor x, bias, encoded;
  };

  /// The bias has a gradient. So it goes through the wrappers as an input, and block 0 returns it through them.
  Flow forward(Flow flow, const T5Context& context, T5BlockCache cached) const {
    // The lambdas copy the context, because a recomputing wrapper may call them after the model's own forward has
    // returned. A cache is used without gradients only, and then nothing is recomputed.
    Tensors out = wrapper({std::move(flow.x), flow.bias, flow.encoded},
                          [this, context, cached](const Tensors& in) { return parts(in, context, cached); });
    flow.x = std::move(out[0]);
    if (out.size() > 1) flow.bias = std::move(out[1]);
    return flow;
  }

 private:
  Tensors parts(const Tensors& in, const T5Context& context, T5BlockCache cached) const {
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

  std::shared_ptr<T5SelfAttentionLayer> self_attention_;
  std::shared_ptr<T5CrossAttentionLayer> cross_attention_;  ///< null in the encoder
  std::shared_ptr<T5FeedForwardLayer> feed_forward_;
};

/// Blocks and final norm.
class T5Stack : public torch::nn::Module {
 public:
  T5Stack(const spec::T5& c, bool is_decoder) : dropout_(c.dropout_rate) {
    const auto list = add_group(*this, "block");
    for (std::int64_t i = 0; i < (is_decoder ? c.num_decoder_layers : c.num_layers); ++i)
      blocks.push_back(add_child<T5Block>(*list, std::to_string(i), c, is_decoder, /*has_bias=*/i == 0));
    final_layer_norm_ = add_child<RmsNorm>(*this, "final_layer_norm", c.d_model, c.layer_norm_epsilon);
  }

  /// [batch, n, d_model] -> [batch, n, d_model].
  at::Tensor forward(const at::Tensor& x, const at::Tensor& encoded, const T5Context& context, T5Cache* cache) const {
    T5Block::Flow flow{x, {}, encoded};
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      const T5BlockCache cached = cache == nullptr ? T5BlockCache() : T5BlockCache{&cache->self[i], &cache->cross[i]};
      flow = blocks[i]->forward(std::move(flow), context, cached);
    }
    return drop_out(final_layer_norm_->forward(flow.x), dropout_, is_training());
  }

  std::vector<std::shared_ptr<T5Block>> blocks;

 private:
  double dropout_;
  std::shared_ptr<RmsNorm> final_layer_norm_;
};

T5ForConditionalGeneration::T5ForConditionalGeneration(const spec::T5& config) : config_(config) {
  check_t5(config_);
  shared_ = add_child<Embedding>(*this, "shared", config_.vocab_size, config_.d_model);
  encoder_ = add_child<T5Stack>(*this, "encoder", config_, /*is_decoder=*/false);
  decoder_ = add_child<T5Stack>(*this, "decoder", config_, /*is_decoder=*/true);
  if (!config_.tie_word_embeddings) lm_head_ = add_child<Linear>(*this, "lm_head", config_.d_model, config_.vocab_size);
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
  const std::size_t blocks = decoder_->blocks.size();
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
          Cache(decoder_->blocks.size())};
}

std::vector<std::shared_ptr<Block>> T5ForConditionalGeneration::blocks() const {
  std::vector<std::shared_ptr<Block>> all(encoder_->blocks.begin(), encoder_->blocks.end());
  all.insert(all.end(), decoder_->blocks.begin(), decoder_->blocks.end());
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
  if (count > 1) {
    const at::Tensor sees = earlier_keys(context.begin, count, x.device());
    context.penalty = t5_penalty(sees.unsqueeze(0).unsqueeze(0), x.scalar_type());
  }
  if (attention_mask.defined()) context.cross = padding_mask(attention_mask);
  const at::Tensor out = decoder_->forward(x, encoded, context, cache);
  // A tied head reads smaller numbers, because the table has those of an input.
  return !config_.scales_head() ? out : out * std::pow(static_cast<double>(config_.d_model), -0.5);
}

}  // namespace worker
