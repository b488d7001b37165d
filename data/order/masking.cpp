#include "data/order/masking.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "data/order/random.h"

namespace data::order {
namespace {

/// One more than the largest id.
constexpr std::int64_t kMostTokens = std::int64_t{1} << 32;

[[noreturn]] void refuse_masking(const std::string& message) {
  throw std::invalid_argument("masking: " + message);
}

void check_probability(const char* option, double value) {
  if (value >= 0 && value <= 1) return;
  refuse_masking(std::string(option) + " is " + std::to_string(value) + "; a probability is from 0 to 1");
}

void check_token(const char* what, std::uint32_t token, std::int64_t vocabulary) {
  if (token < vocabulary) return;
  refuse_masking(std::string(what) + " is " + std::to_string(token) + ", and the vocabulary has " +
                 std::to_string(vocabulary) + " tokens; use the tokenizer that the data was prepared with");
}

}  // namespace

Masking::Masking(MaskingOptions options) : options_(std::move(options)) {
  check_probability("share", options_.share);
  check_probability("masked", options_.masked);
  check_probability("random", options_.random);
  check_probability("masked + random", options_.masked + options_.random);
  if (options_.vocabulary < 1 || options_.vocabulary > kMostTokens) {
    refuse_masking("vocabulary is " + std::to_string(options_.vocabulary) + " tokens; it must be 1 to 2^32");
  }
  check_token("the mask token", options_.mask, options_.vocabulary);
  auto& special = options_.special;
  special.push_back(options_.mask);
  std::sort(special.begin(), special.end());
  special.erase(std::unique(special.begin(), special.end()), special.end());
  check_token("a special token", special.back(), options_.vocabulary);
  if (static_cast<std::int64_t>(special.size()) == options_.vocabulary) {
    refuse_masking("all " + std::to_string(options_.vocabulary) + " tokens of the vocabulary are special");
  }
}

bool Masking::is_special(std::uint32_t token) const {
  return std::binary_search(options_.special.begin(), options_.special.end(), token);
}

/// The ordinary token of this number, counted without the special ones.
std::uint32_t Masking::ordinary(std::uint64_t number) const {
  for (const auto special : options_.special) number += special <= number ? 1 : 0;
  return static_cast<std::uint32_t>(number);
}

MaskedText Masking::mask(std::span<const std::uint32_t> tokens, std::uint64_t seed) const {
  const auto ordinary_tokens =
      static_cast<std::uint64_t>(options_.vocabulary) - static_cast<std::uint64_t>(options_.special.size());
  MaskedText text{{tokens.begin(), tokens.end()}, std::vector<std::int64_t>(tokens.size(), kNoTarget)};
  Random random(seed, 0);
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    check_token("a token", tokens[i], options_.vocabulary);
    if (is_special(tokens[i]) || !random.happens(options_.share)) continue;
    text.targets[i] = tokens[i];
    const double kind = random.unit();
    if (kind < options_.masked) {
      text.input[i] = options_.mask;
    } else if (kind < options_.masked + options_.random) {
      text.input[i] = ordinary(random.below(ordinary_tokens));
    }
  }
  return text;
}

}  // namespace data::order
