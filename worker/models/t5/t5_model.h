#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <vector>

#include "spec/tables/t5_keys.h"
#include "worker/models/layers/attention.h"
#include "worker/models/layers/layers.h"

namespace worker {

/// The buckets of relative positions (key minus query), int64 of any shape, as T5 has them (Raffel et al., arXiv
/// 1910.10683, section 2.1). Half of the buckets hold one distance each. The others grow with the logarithm up to
/// `max_distance`, and the last one has all that is longer. `bidirectional`: keys after the query have the upper half
/// of the buckets. Otherwise they are in the bucket of distance 0, because a mask hides them.
at::Tensor t5_buckets(const at::Tensor& relative, bool bidirectional, std::int64_t buckets, std::int64_t max_distance);

/// Trained bias that T5 adds to scores of attention in place of positions: one number for each bucket and head.
class T5RelativeBias : public torch::nn::Module {
 public:
  T5RelativeBias(const spec::T5& config, bool bidirectional);
  /// For queries at the positions begin, begin + 1, .. and keys from position 0 on: [1, heads, queries, keys] in the
  /// weight's dtype.
  at::Tensor forward(std::int64_t begin, std::int64_t queries, std::int64_t keys) const;

  at::Tensor weight;  ///< [buckets, heads]

 private:
  bool bidirectional_;
  std::int64_t max_distance_;
};

/// A mask to be added to scores of that dtype: 0 where `sees` (bool) is true, and the lowest finite number elsewhere.
at::Tensor t5_penalty(const at::Tensor& sees, at::ScalarType dtype);

/// Cache of what T5's decoder has read: keys and values of each block for its own tokens, and for those of the encoder.
struct T5Cache {
  Cache self;   ///< grows by each token
  Cache cross;  ///< computed by the first next(), and undefined before
};

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
  explicit T5Attention(const spec::T5& config);
  /// The keys and values of tokens [batch, n, d_model]: [batch, heads, n, d_kv].
  KeyValues keys_and_values(const at::Tensor& tokens) const;
  /// [batch, queries, d_model] -> [batch, queries, d_model].
  at::Tensor forward(const at::Tensor& x, const at::Tensor& keys, const at::Tensor& values, const Mask& mask) const;

 protected:
  std::int64_t heads_, head_dim_;

 private:
  at::Tensor by_heads(const at::Tensor& x) const;

  double dropout_;
  std::shared_ptr<Linear> q_, k_, v_, o_;
};

/// Attention of a stack to itself. That of block 0 has the relative bias of all blocks.
class T5SelfAttention : public T5Attention {
 public:
  T5SelfAttention(const spec::T5& config, bool is_decoder, bool has_bias);

  std::shared_ptr<T5RelativeBias> relative_attention_bias;  ///< null without one
};

/// x + self-attention(norm(x)).
class T5SelfAttentionLayer : public torch::nn::Module {
 public:
  T5SelfAttentionLayer(const spec::T5& config, bool is_decoder, bool has_bias);
  /// Takes x and the bias, which is undefined for block 0. Returns x, and from block 0 also the bias that it has made:
  /// [batch or 1, heads, queries, keys], with the context's penalty in it.
  Tensors forward(const at::Tensor& x, at::Tensor bias, const T5Context& context, KeyValues* cached) const;

 private:
  double dropout_;
  std::shared_ptr<T5SelfAttention> attention_;
  std::shared_ptr<RmsNorm> layer_norm_;
};

/// x + attention of norm(x) to what the encoder made.
class T5CrossAttentionLayer : public torch::nn::Module {
 public:
  explicit T5CrossAttentionLayer(const spec::T5& config);
  at::Tensor forward(const at::Tensor& x, const at::Tensor& encoded, const Mask& mask, KeyValues* cached) const;

 private:
  double dropout_;
  std::shared_ptr<T5Attention> attention_;
  std::shared_ptr<RmsNorm> layer_norm_;
};

/// wo(act(wi(x))), or with a gate wo(act(wi_0(x)) * wi_1(x)) (Shazeer, arXiv 2002.05202). wo may have another dtype
/// than the rest, because its sums overflow in fp16.
class T5FeedForward : public torch::nn::Module {
 public:
  explicit T5FeedForward(const spec::T5& config);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  Activation act_;
  double dropout_;
  std::shared_ptr<Linear> in_, linear_, out_;  ///< wi or wi_0; wi_1 or null; wo
};

/// x + feed-forward(norm(x)).
class T5FeedForwardLayer : public torch::nn::Module {
 public:
  explicit T5FeedForwardLayer(const spec::T5& config);
  at::Tensor forward(const at::Tensor& x) const;

 private:
  double dropout_;
  std::shared_ptr<T5FeedForward> feed_forward_;
  std::shared_ptr<RmsNorm> layer_norm_;
};

/// A block of the encoder or of the decoder. A decoder block calls both of its attentions through attention_wrapper.
class T5Block : public Block {
 public:
  T5Block(const spec::T5& config, bool is_decoder, bool has_bias);
  /// Tensors that go from block to block. `encoded` is undefined in the encoder.
  struct Flow {
    at::Tensor x, bias, encoded;
  };
  /// The bias has a gradient. So it goes through the wrappers as an input, and block 0 returns it through them.
  Flow forward(Flow flow, const T5Context& context, T5BlockCache cached) const;

 private:
  Tensors parts(const Tensors& in, const T5Context& context, T5BlockCache cached) const;

  std::shared_ptr<T5SelfAttentionLayer> self_attention_;
  std::shared_ptr<T5CrossAttentionLayer> cross_attention_;  ///< null in the encoder
  std::shared_ptr<T5FeedForwardLayer> feed_forward_;
};

/// Blocks and final norm.
class T5Stack : public torch::nn::Module {
 public:
  T5Stack(const spec::T5& config, bool is_decoder);
  /// [batch, n, d_model] -> [batch, n, d_model].
  at::Tensor forward(const at::Tensor& x, const at::Tensor& encoded, const T5Context& context, T5Cache* cache) const;

  std::vector<std::shared_ptr<T5Block>> block;

 private:
  double dropout_;
  std::shared_ptr<RmsNorm> final_layer_norm_;
};

/// T5 with a language-model head: reads a text with the encoder, and writes another one with the decoder. With a tied
/// head there is no `lm_head.weight`. It knows nothing of sharding. Its parameters are fp32 and have Hugging Face's
/// names.
///
/// `attention_mask` is [batch, source], true or above 0 where a token counts, or undefined where all do. Padding may
/// lie on either side, but distances count places and not tokens.
///
/// Memory: the bias needs a gradient, so attention to itself cannot be fused, and each block keeps its probabilities:
/// batch x heads x queries x keys in fp32, and again in the dtype of the activations if that is another one. Activation
/// checkpointing keeps those of one block alone.
///
/// The root's wrapper and those of the blocks own the calls, so with a sharding engine all ranks must make the same
/// calls of forward(), loss(), encode() and next() in the same order.
class T5ForConditionalGeneration : public torch::nn::Module, public Wrapped {
 public:
  /// The parameters have no values yet. Throws std::invalid_argument naming key, value and remedy when the sizes
  /// contradict each other.
  explicit T5ForConditionalGeneration(const spec::T5& config);

  /// Logits [batch, n, vocab] for int64 ids [batch, source] and decoder_ids [batch, n].
  at::Tensor forward(const at::Tensor& ids, const at::Tensor& attention_mask, const at::Tensor& decoder_ids) const;

  /// The sum of the cross entropies of the targets, int64 [batch, n], without all logits at once; see
  /// linear_cross_entropy(). Targets of kNoTarget count for nothing. The decoder reads decoder_inputs() of them.
  at::Tensor loss(const at::Tensor& ids, const at::Tensor& attention_mask, const at::Tensor& targets) const;

  /// Returns the ids that the decoder reads to predict the targets: the start token, and the targets but the last one.
  /// Padding stands for kNoTarget.
  at::Tensor decoder_inputs(const at::Tensor& targets) const;

  /// Returns the states that the decoder sees of a text: [batch, source, d_model].
  at::Tensor encode(const at::Tensor& ids, const at::Tensor& attention_mask) const;

  /// Reads more tokens of the decoder, int64 [batch, n], after those in `cache`, and returns the logits of the last
  /// one, [batch, vocab]. The first token is config().decoder_start_token_id. `encoded` is of encode(), and all calls
  /// with one cache must give the same one. Throws c10::Error where gradients are recorded, for a cache of another
  /// number of blocks or of too small a capacity, and for another number of rows than `encoded` has.
  at::Tensor next(const at::Tensor& decoder_ids, const at::Tensor& encoded, const at::Tensor& attention_mask,
                  T5Cache& cache) const;

  /// A cache without tokens for next(). `dtype` and `device` are those of the activations. `capacity` counts tokens of
  /// the decoder.
  T5Cache cache(std::int64_t batch, std::int64_t capacity, at::ScalarType dtype, at::Device device) const;

  /// Those of the encoder, then those of the decoder.
  std::vector<std::shared_ptr<Block>> blocks() const;

  const spec::T5& config() const { return config_; }

 private:
  at::Tensor embedded(const at::Tensor& ids) const;
  at::Tensor encoded_of(const at::Tensor& ids, const at::Tensor& attention_mask) const;
  /// Returns the input of the head.
  at::Tensor decoded_of(const at::Tensor& decoder_ids, const at::Tensor& encoded, const at::Tensor& attention_mask,
                        T5Cache* cache) const;
  const at::Tensor& head() const;

  spec::T5 config_;
  std::shared_ptr<Embedding> shared_;
  std::shared_ptr<T5Stack> encoder_, decoder_;
  std::shared_ptr<Linear> lm_head_;  ///< null when tied
};

}  // namespace worker
