#include "data/order/masking.h"

#include <algorithm>
#include <cmath>
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

namespace {

struct Noise {
  std::int64_t tokens, spans;
};

[[noreturn]] void refuse_spans(const std::string& message) {
  throw std::invalid_argument("span corruption: " + message);
}

void check_spans(const SpanOptions& options) {
  if (!(options.density > 0 && options.density < 1)) {
    refuse_spans("density is " + std::to_string(options.density) + "; it must be above 0 and below 1");
  }
  if (!(options.mean_length >= 1)) {
    refuse_spans("mean_length is " + std::to_string(options.mean_length) + " tokens; it must be at least 1");
  }
  if (options.sentinels < 1 || options.sentinels > std::int64_t{options.first_sentinel} + 1) {
    refuse_spans("sentinels is " + std::to_string(options.sentinels) + "; it must be at least 1 and at most " +
                 std::to_string(std::int64_t{options.first_sentinel} + 1) +
                 ", as they go down to id 0 from first_sentinel");
  }
}

/// `tokens` is at least 2. As Python's round(), nearbyint() takes halves to the even number.
Noise noise_of(std::int64_t tokens, const SpanOptions& options) {
  const auto rounded = [](double value) { return static_cast<std::int64_t>(std::nearbyint(value)); };
  const auto noise = std::clamp<std::int64_t>(rounded(static_cast<double>(tokens) * options.density), 1, tokens - 1);
  // Each span has at least one token of noise, one kept token before it, and a sentinel.
  const auto most = std::min({noise, tokens - noise, options.sentinels});
  return {noise, std::clamp<std::int64_t>(rounded(static_cast<double>(noise) / options.mean_length), 1, most)};
}

/// The sizes of so many parts, each at least 1, that are `items` together.
std::vector<std::int64_t> random_parts(std::int64_t items, std::int64_t parts, Random& random) {
  std::vector<char> begins(static_cast<std::size_t>(items - 1), 0);  // whether a part begins after this item
  std::fill_n(begins.begin(), parts - 1, 1);
  random.shuffle(begins);
  std::vector<std::int64_t> sizes{1};
  for (const char one : begins) {
    if (one) sizes.push_back(0);
    ++sizes.back();
  }
  return sizes;
}

}  // namespace

SpanSizes span_sizes(std::int64_t tokens, const SpanOptions& options) {
  check_spans(options);
  const auto noise = noise_of(std::max<std::int64_t>(tokens, 2), options);
  const std::int64_t end = options.eos ? 1 : 0;
  return {tokens - noise.tokens + noise.spans + end, noise.tokens + noise.spans + end};
}

std::int64_t text_for_input(std::int64_t input, const SpanOptions& options) {
  if (const auto least = span_sizes(2, options).input; input < least) {
    refuse_spans("an input of " + std::to_string(input) + " tokens has no room for a text; it needs at least " +
                 std::to_string(least));
  }
  // An input never has fewer tokens when the text has one more: noise grows by at most one token.
  std::int64_t fits = 2;
  while (span_sizes(fits + 1, options).input <= input) ++fits;
  return fits;
}

std::vector<bool> random_noise(std::int64_t tokens, const SpanOptions& options, std::uint64_t seed) {
  check_spans(options);
  if (tokens < 2) return std::vector<bool>(static_cast<std::size_t>(std::max<std::int64_t>(tokens, 0)), false);
  const auto noise = noise_of(tokens, options);
  Random random(seed, 0);
  const auto cut = random_parts(noise.tokens, noise.spans, random);
  const auto kept = random_parts(tokens - noise.tokens, noise.spans, random);
  std::vector<bool> mask;
  for (std::size_t span = 0; span < cut.size(); ++span) {
    mask.insert(mask.end(), static_cast<std::size_t>(kept[span]), false);
    mask.insert(mask.end(), static_cast<std::size_t>(cut[span]), true);
  }
  return mask;
}

CorruptedText cut_spans(std::span<const std::uint32_t> tokens, const std::vector<bool>& noise,
                        const SpanOptions& options) {
  check_spans(options);
  if (noise.size() != tokens.size()) {
    refuse_spans("the noise is for " + std::to_string(noise.size()) + " tokens, and the text has " +
                 std::to_string(tokens.size()));
  }
  CorruptedText text;
  std::int64_t of_input = 0, of_target = 0;  // sentinels used
  const auto add_sentinel = [&](std::vector<std::uint32_t>& to, std::int64_t& used) {
    if (used == options.sentinels) {
      refuse_spans("the noise has more than " + std::to_string(options.sentinels) +
                   " spans, which is the number of sentinels");
    }
    to.push_back(static_cast<std::uint32_t>(options.first_sentinel - used++));
  };
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const bool begins = i == 0 || noise[i] != noise[i - 1];
    (noise[i] ? text.target : text.input).push_back(tokens[i]);
    if (begins && noise[i]) add_sentinel(text.input, of_input);
    if (begins && !noise[i]) add_sentinel(text.target, of_target);
  }
  if (options.eos) {
    text.input.push_back(*options.eos);
    text.target.push_back(*options.eos);
  }
  return text;
}

}  // namespace data::order
