#include "data/order/masking.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <stdexcept>
#include <string>

namespace data::order {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::Pair;
using Ids = std::vector<std::uint32_t>;
using Mask = std::vector<bool>;

constexpr std::uint32_t kEos = 1, kFirstSentinel = 32099;
const SpanOptions kT5{.first_sentinel = kFirstSentinel, .eos = kEos};

/// Ids that are neither eos nor sentinels.
Ids text_of(std::int64_t tokens) {
  Ids out(static_cast<std::size_t>(tokens));
  std::iota(out.begin(), out.end(), 100);
  return out;
}

bool is_sentinel(std::uint32_t token) {
  return token <= kFirstSentinel && token > kFirstSentinel - 100;
}

/// Puts the spans of the target where the sentinels of the input are.
Ids restore(const CorruptedText& text) {
  Ids out;
  for (const auto token : text.input) {
    if (token == kEos) break;
    if (!is_sentinel(token)) {
      out.push_back(token);
      continue;
    }
    auto at = std::find(text.target.begin(), text.target.end(), token);
    if (at == text.target.end()) return {};
    for (++at; at != text.target.end() && !is_sentinel(*at) && *at != kEos; ++at) out.push_back(*at);
  }
  return out;
}

std::int64_t count_runs(const Mask& mask) {
  std::int64_t runs = 0;
  for (std::size_t i = 0; i < mask.size(); ++i) runs += mask[i] && (i == 0 || !mask[i - 1]) ? 1 : 0;
  return runs;
}

// The figure of the paper, with its words as ids: thank 10, you 11, for 12, inviting 13, me 14, to 15, your 16,
// party 17, last 18, week 19.
TEST(Spans, AreCutOutAsInThePaperOfT5) {
  const Ids tokens{10, 11, 12, 13, 14, 15, 16, 17, 18, 19};
  const Mask noise{false, false, true, true, false, false, false, false, true, false};
  const auto text = cut_spans(tokens, noise, {.first_sentinel = 99, .sentinels = 3, .eos = 1});
  EXPECT_THAT(text.input, ElementsAre(10, 11, 99, 14, 15, 16, 17, 98, 19, 1));
  EXPECT_THAT(text.target, ElementsAre(99, 12, 13, 98, 18, 97, 1)) << "the text ends with a kept token";
}

// round(tokens x density) and round(noise / mean length), halves to the even number.
TEST(Spans, HaveTheSizesOfT5) {
  EXPECT_EQ(text_for_input(512, kT5), 568) << "published: 568 tokens for 512, with a target of 114";
  EXPECT_EQ(span_sizes(568, kT5).input, 512);
  EXPECT_EQ(span_sizes(568, kT5).target, 114);
  const auto noise_and_spans = [](std::int64_t tokens) {
    const auto mask = random_noise(tokens, kT5, 1);
    return std::pair(std::count(mask.begin(), mask.end(), true), count_runs(mask));
  };
  EXPECT_THAT(noise_and_spans(2), Pair(1, 1)) << "at least one";
  EXPECT_THAT(noise_and_spans(10), Pair(2, 1)) << "1.5 noise, 0.67 spans";
  EXPECT_THAT(noise_and_spans(30), Pair(4, 1)) << "4.5 noise, 1.33 spans";
  EXPECT_THAT(noise_and_spans(100), Pair(15, 5));
  EXPECT_THAT(noise_and_spans(568), Pair(85, 28));
}

TEST(Spans, TextAndPiecesSayTheSame) {
  for (std::int64_t tokens = 2; tokens < 400; tokens += tokens < 20 ? 1 : 13) {
    const auto tokens_of_text = text_of(tokens);
    for (std::uint64_t seed = 0; seed < 5; ++seed) {
      const auto mask = random_noise(tokens, kT5, seed);
      ASSERT_EQ(mask.size(), tokens_of_text.size());
      EXPECT_FALSE(mask.front());
      EXPECT_TRUE(mask.back());
      const auto text = cut_spans(tokens_of_text, mask, kT5);
      const auto sizes = span_sizes(tokens, kT5);
      EXPECT_EQ(text.input.size(), sizes.input);
      EXPECT_EQ(text.target.size(), sizes.target);
      EXPECT_EQ(text.input.back(), kEos);
      EXPECT_EQ(text.target.back(), kEos);
      EXPECT_EQ(text.target.front(), kFirstSentinel);
      EXPECT_EQ(restore(text), tokens_of_text) << tokens << " tokens, seed " << seed;
    }
  }
}

TEST(Spans, AnInputNeverExceedsWhatItsTextWasChosenFor) {
  for (const SpanOptions& options : {kT5, SpanOptions{.density = 0.5, .mean_length = 1, .first_sentinel = 1000},
                                     SpanOptions{.density = 0.9, .mean_length = 8, .first_sentinel = 1000}}) {
    for (std::int64_t input = 8; input < 600; ++input) {
      const auto tokens = text_for_input(input, options);
      EXPECT_LE(span_sizes(tokens, options).input, input);
      EXPECT_GT(span_sizes(tokens + 1, options).input, input);
    }
  }
}

// Goal: spans are where chance puts them, not at fixed places.
// Method: in 4,000 masks of 100 tokens, 15 of them noise in 5 spans, every division of 15 into 5 parts is equally
// likely. So the first span has one token in C(13,3) / C(14,4) = 28.6 % of them. The first kept part is one token long
// in C(83,3) / C(84,4) = 4.76 %. Bounds: five standard deviations.
TEST(Spans, DivisionsAreEquallyLikely) {
  constexpr int kMasks = 4000;
  int short_span = 0, short_start = 0;
  for (std::uint64_t seed = 0; seed < kMasks; ++seed) {
    const auto mask = random_noise(100, kT5, seed);
    const auto begin = std::find(mask.begin(), mask.end(), true);
    short_start += begin - mask.begin() == 1 ? 1 : 0;
    short_span += *(begin + 1) ? 0 : 1;
  }
  EXPECT_NEAR(short_span, 0.2857 * kMasks, 143);
  EXPECT_NEAR(short_start, 0.0476 * kMasks, 68);
}

TEST(Spans, TheSeedDecides) {
  EXPECT_EQ(random_noise(200, kT5, 5), random_noise(200, kT5, 5));
  EXPECT_NE(random_noise(200, kT5, 5), random_noise(200, kT5, 6));
}

TEST(Spans, OfAShortTextAreThoseOfT5) {
  const auto one = cut_spans(text_of(1), random_noise(1, kT5, 0), kT5);
  EXPECT_THAT(one.input, ElementsAre(100, kEos));
  EXPECT_THAT(one.target, ElementsAre(kFirstSentinel, kEos));
  const auto none = cut_spans({}, random_noise(0, kT5, 0), kT5);
  EXPECT_THAT(none.input, ElementsAre(kEos));
  EXPECT_THAT(none.target, ElementsAre(kEos));
}

TEST(Spans, AreNeverMoreThanThereAreSentinels) {
  for (const std::int64_t sentinels : {1, 3, 7}) {
    const SpanOptions options{.first_sentinel = kFirstSentinel, .sentinels = sentinels};
    const auto mask = random_noise(1000, options, 1);
    EXPECT_EQ(count_runs(mask), sentinels);
    EXPECT_EQ(std::count(mask.begin(), mask.end(), true), 150) << "as much noise, in longer spans";
  }
  const SpanOptions dense{.density = 0.9, .mean_length = 1, .first_sentinel = kFirstSentinel};
  EXPECT_EQ(count_runs(random_noise(100, dense, 1)), 10) << "between spans there is a kept token";
}

TEST(Spans, RefuseOptionsOutsideTheirRange) {
  const auto message_of = [](const SpanOptions& options) -> std::string {
    try {
      random_noise(10, options, 0);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message_of({.density = 0, .first_sentinel = 200}),
            "span corruption: density is 0.000000; it must be above 0 and below 1");
  EXPECT_THAT(message_of({.density = 1, .first_sentinel = 200}), HasSubstr("density is 1.0"));
  EXPECT_THAT(message_of({.density = std::nan(""), .first_sentinel = 200}), HasSubstr("density is nan"));
  EXPECT_EQ(message_of({.mean_length = 0.5, .first_sentinel = 200}),
            "span corruption: mean_length is 0.500000 tokens; it must be at least 1");
  EXPECT_EQ(message_of({.first_sentinel = 98}),
            "span corruption: sentinels is 100; it must be at least 1 and at most 99, as they go down to id 0 from "
            "first_sentinel");
  EXPECT_THAT(message_of({.first_sentinel = 98, .sentinels = 0}), HasSubstr("sentinels is 0"));
  EXPECT_EQ(message_of({.first_sentinel = 99}), "") << "down to id 0";
}

TEST(Spans, RefuseNoiseThatDoesNotFit) {
  const auto message_of = [](const auto& call) -> std::string {
    try {
      call();
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  const SpanOptions options{.first_sentinel = 9, .sentinels = 2};
  EXPECT_EQ(message_of([&] { cut_spans(text_of(3), Mask(2), options); }),
            "span corruption: the noise is for 2 tokens, and the text has 3");
  const Mask three{true, false, true, false, true};
  EXPECT_EQ(message_of([&] { cut_spans(text_of(5), three, options); }),
            "span corruption: the noise has more than 2 spans, which is the number of sentinels");
  EXPECT_EQ(message_of([&] { text_for_input(1, options); }),
            "span corruption: an input of 1 tokens has no room for a text; it needs at least 2");
}

}  // namespace
}  // namespace data::order
