#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "data/order/target.h"

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

}  // namespace data::order
