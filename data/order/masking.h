#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "data/order/order.h"

namespace data::order {

/// The masked-language-model objective of BERT (Devlin et al., "BERT: Pre-training of Deep Bidirectional Transformers",
/// 2019, section 3.1). Some tokens are chosen, each with probability `share`. Most of these become the mask token, some
/// a random token, and some stay. The model has to say what each of them was.
struct MaskingOptions {
  double share = 0.15;     ///< probability that an ordinary token is chosen, 0 to 1
  double masked = 0.8;     ///< probability that a chosen token becomes the mask token
  double random = 0.1;     ///< probability that it becomes a random one; masked + random is at most 1, else it stays
  std::uint32_t mask = 0;  ///< id of the mask token
  std::int64_t vocabulary = 0;  ///< ids are in [0, vocabulary)
  /// Ids with a meaning of their own: padding, begin, end, separator. Never chosen, and never a random token. The mask
  /// token counts as one of them.
  std::vector<std::uint32_t> special = {};
};

struct MaskedText {
  std::vector<std::uint32_t> input;
  std::vector<std::int64_t> targets;  ///< what a chosen token was, kNoTarget for all others
};

/// Masks texts. Its functions may be called from several threads.
class Masking {
 public:
  /// Throws std::invalid_argument naming the option, its value and its range, and where no ordinary token is left.
  explicit Masking(MaskingOptions options);

  /// The text with its chosen tokens replaced. Depends on options, tokens and seed only. A short text may have no
  /// chosen token, and then its weight is 0. Throws std::invalid_argument naming a token outside the vocabulary.
  MaskedText mask(std::span<const std::uint32_t> tokens, std::uint64_t seed) const;

 private:
  bool is_special(std::uint32_t token) const;
  std::uint32_t ordinary(std::uint64_t number) const;

  MaskingOptions options_;  // special: sorted, each once, with the mask token
};

/// Span corruption, the objective that T5 was trained on first (Raffel et al., "Exploring the Limits of Transfer
/// Learning with a Unified Text-to-Text Transformer", 2020, section 3.1.4). Spans of a text are cut out. In the input
/// each span leaves one sentinel. The target has each sentinel with the tokens that were there:
///
///   text    the quick brown fox jumps over it      (noise: "quick", "over it")
///   input   the <0> brown fox jumps <1> </s>
///   target  <0> quick <1> over it </s>
///
/// The names of the published code (t5/data/preprocessors.py): noise_density, mean_noise_span_length.
struct SpanOptions {
  double density = 0.15;                  ///< share of the tokens that is cut out, above 0 and below 1
  double mean_length = 3;                 ///< tokens of a span on average, at least 1
  std::uint32_t first_sentinel = 0;       ///< id of <extra_id_0>; span k, from 0, has the id first_sentinel - k
  std::int64_t sentinels = 100;           ///< how many there are, at least 1; a longer text gets longer spans, not more
  std::optional<std::uint32_t> eos = {};  ///< ends input and target
};

/// Tokens of an input and of its target, sentinels and eos included.
struct SpanSizes {
  std::int64_t input = 0, target = 0;
};

/// The sizes that a text of so many tokens, at least 2, always has. Throws as random_noise() does.
SpanSizes span_sizes(std::int64_t tokens, const SpanOptions& options);

/// The most tokens of a text whose input has at most `input` tokens. T5 reads 568 tokens for an input of 512. Throws as
/// random_noise() does, and std::invalid_argument for an input that is too short for a text of 2 tokens.
std::int64_t text_for_input(std::int64_t input, const SpanOptions& options);

/// Which tokens of a text are cut out: T5's random_spans_noise_mask. round(tokens x density) tokens in
/// round(noise / mean_length) spans, at least one of each, halves to the even number. All divisions of the noise into
/// spans are equally likely, and so are all divisions of what is between them. The text begins with a kept token and
/// ends with noise. A text of one token keeps it, as in T5.
///
/// Depends on the arguments only. Throws std::invalid_argument naming an option outside its range, its value and range.
std::vector<bool> random_noise(std::int64_t tokens, const SpanOptions& options, std::uint64_t seed);

struct CorruptedText {
  std::vector<std::uint32_t> input, target;
};

/// Cuts the tokens out that `noise` names. In the input each run of noise becomes a sentinel, in the target each run of
/// the rest. Throws std::invalid_argument if `noise` has another size than `tokens`, or more runs than there are
/// sentinels.
CorruptedText cut_spans(std::span<const std::uint32_t> tokens, const std::vector<bool>& noise,
                        const SpanOptions& options);

}  // namespace data::order
