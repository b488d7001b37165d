#pragma once

#include <cstdint>
#include <span>
#include <vector>

namespace worker {

/// How the next token is chosen, and when a text is over.
struct Sampling {
  double temperature = 0;  ///< 0: the most likely token; above: a token drawn from softmax(logits / temperature)
  double top_p = 1;        ///< above 0 and at most 1: draw among the most likely tokens of this much probability
  std::int64_t max_new_tokens = 128;  ///< of each text, its end included
  std::vector<std::int64_t> ends{};   ///< a text is over with one of these tokens
  std::uint64_t seed = 0;             ///< of the draws
  std::uint64_t first_row = 0;        ///< the number that the first row has for the draws
};

/// Throws std::invalid_argument naming what is out of its range.
void check(const Sampling& sampling);

/// The next token for the logits of a position, [vocabulary]. Of equally likely tokens the one with the smallest id is
/// the first. `draw` is 64 random bits, and equal bits give equal tokens on every machine, as far as its exp() rounds
/// alike.
///
/// top_p is nucleus sampling (Holtzman et al., arXiv 1904.09751), as in transformers: tokens are sorted by probability,
/// and a token stays if those before it have less than top_p together.
///
/// Throws std::invalid_argument when there are no logits or one is not a number.
std::int64_t pick(std::span<const float> logits, const Sampling& sampling, std::uint64_t draw);

/// The random bits for a new token: number `token` (from 0) of row `row`. They do not depend on other rows.
std::uint64_t draw_for(std::uint64_t seed, std::uint64_t row, std::uint64_t token);

}  // namespace worker
