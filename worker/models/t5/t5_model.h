#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <string_view>
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

/// Cache of what T5's decoder has read: keys and values of each block for its own tokens, and for those of the encoder.
struct T5Cache {
  Cache self;   ///< grows by each token
  Cache cross;  ///< computed by the first next(), and undefined before
};

class T5Stack;

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

/// The architecture of T5 that is trained here, as config.json names it.
inline constexpr std::string_view kT5Architecture = "T5ForConditionalGeneration";

/// True if a parameter is kept in fp32 where the others have 16 bits: the last layer of a feed-forward block, whose
/// sums overflow in fp16. transformers keeps it, too (_keep_in_fp32_modules).
bool is_wide_in_t5(std::string_view parameter);

}  // namespace worker
