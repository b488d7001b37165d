#include "data/order/masking.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <stdexcept>
#include <string>

namespace data::order {
namespace {

using Ids = std::vector<std::uint32_t>;

constexpr std::uint32_t kPad = 0, kBegin = 2, kEnd = 3, kMask = 4;

MaskingOptions bert() {
  return {.mask = kMask, .vocabulary = 1000, .special = {kEnd, kPad, kBegin, kEnd}};
}

/// Begin, 60 ordinary tokens, end, and padding.
Ids sentence() {
  Ids tokens{kBegin};
  for (std::uint32_t i = 0; i < 60; ++i) tokens.push_back(5 + i * 13);
  tokens.push_back(kEnd);
  tokens.resize(70, kPad);
  return tokens;
}

void expect_share(std::int64_t count, std::int64_t of, double share, const char* what) {
  const double expected = static_cast<double>(of) * share;
  EXPECT_NEAR(static_cast<double>(count), expected, 4 * std::sqrt(expected * (1 - share))) << what;
}

// Goal: 15 % of the ordinary tokens are chosen; of these 80 % are masked, 10 % random, 10 % kept.
// Method: 120,000 ordinary tokens, bounds of four standard deviations, a fixed seed.
TEST(Masking, ChoosesTheSharesOfBert) {
  const Masking masking(bert());
  const auto tokens = sentence();
  std::int64_t chosen = 0, masked = 0, kept = 0, random = 0;
  std::set<std::uint32_t> drawn;
  for (std::uint64_t seed = 0; seed < 2000; ++seed) {
    const auto text = masking.mask(tokens, seed);
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      if (text.targets[i] == kNoTarget) {
        EXPECT_EQ(text.input[i], tokens[i]) << "a token that is not chosen stays";
        continue;
      }
      EXPECT_EQ(text.targets[i], tokens[i]);
      ++chosen;
      masked += text.input[i] == kMask ? 1 : 0;
      kept += text.input[i] == tokens[i] ? 1 : 0;
      if (text.input[i] == kMask || text.input[i] == tokens[i]) continue;
      ++random;
      drawn.insert(text.input[i]);
    }
  }
  expect_share(chosen, 120000, 0.15, "chosen");
  expect_share(masked, chosen, 0.8, "masked");
  expect_share(random, chosen, 0.1, "random");
  expect_share(kept, chosen, 0.1, "kept");
  EXPECT_GT(drawn.size(), 750) << "of 996, in about 1,800 draws";
  EXPECT_LT(*drawn.begin(), 10);
  EXPECT_GT(*drawn.rbegin(), 990);
}

TEST(Masking, NeverChoosesOrDrawsASpecialToken) {
  auto options = bert();
  options.share = 1;
  options.masked = 0;
  options.random = 1;
  options.vocabulary = 9;
  options.special = {8, kPad, kBegin, kEnd};
  const Masking masking(options);
  const Ids tokens{kBegin, 5, 6, kMask, 7, 1, kEnd, kPad, 8};
  std::set<std::uint32_t> drawn;
  for (std::uint64_t seed = 0; seed < 500; ++seed) {
    const auto text = masking.mask(tokens, seed);
    EXPECT_THAT(text.targets,
                ::testing::ElementsAre(kNoTarget, 5, 6, kNoTarget, 7, 1, kNoTarget, kNoTarget, kNoTarget));
    for (const std::size_t special : {0, 3, 6, 7, 8}) EXPECT_EQ(text.input[special], tokens[special]);
    for (const std::size_t ordinary : {1, 2, 4, 5}) drawn.insert(text.input[ordinary]);
  }
  EXPECT_THAT(drawn, ::testing::ElementsAre(1, 5, 6, 7)) << "all ordinary ones, and no other";
}

TEST(Masking, TheSeedDecides) {
  const Masking masking(bert());
  const auto one = masking.mask(sentence(), 1), again = masking.mask(sentence(), 1), two = masking.mask(sentence(), 2);
  EXPECT_EQ(one.input, again.input);
  EXPECT_EQ(one.targets, again.targets);
  EXPECT_NE(one.targets, two.targets);
}

TEST(Masking, AtTheEdgesOfItsShares) {
  auto options = bert();
  options.share = 0;
  EXPECT_EQ(Masking(options).mask(sentence(), 1).input, sentence());
  options.share = 1;
  options.masked = 1;
  options.random = 0;
  const auto text = Masking(options).mask(sentence(), 1);
  EXPECT_EQ(std::count(text.input.begin(), text.input.end(), kMask), 60);
  EXPECT_TRUE(Masking(options).mask({}, 1).input.empty());
}

TEST(Masking, RefusesOptionsAndTokensOutsideTheirRange) {
  const auto message_of = [](const auto& change) -> std::string {
    auto options = bert();
    change(options);
    try {
      Masking masking(options);
      masking.mask(Ids{5, 1000}, 1);
    } catch (const std::invalid_argument& error) {
      return error.what();
    }
    return "";
  };
  EXPECT_EQ(message_of([](auto& options) { options.share = 1.5; }),
            "masking: share is 1.500000; a probability is from 0 to 1");
  EXPECT_EQ(message_of([](auto& options) { options.masked = -0.1; }),
            "masking: masked is -0.100000; a probability is from 0 to 1");
  EXPECT_EQ(message_of([](auto& options) { options.random = 0.5; }),
            "masking: masked + random is 1.300000; a probability is from 0 to 1");
  EXPECT_EQ(message_of([](auto& options) { options.vocabulary = 0; }),
            "masking: vocabulary is 0 tokens; it must be 1 to 2^32");
  EXPECT_EQ(message_of([](auto& options) { options.mask = 1000; }),
            "masking: the mask token is 1000, and the vocabulary has 1000 tokens; use the tokenizer that the data was "
            "prepared with");
  EXPECT_EQ(message_of([](auto& options) { options.special = {1234}; }),
            "masking: a special token is 1234, and the vocabulary has 1000 tokens; use the tokenizer that the data was "
            "prepared with");
  EXPECT_EQ(message_of([](auto& options) {
              options.vocabulary = 3;
              options.mask = 0;
              options.special = {1, 2};
            }),
            "masking: all 3 tokens of the vocabulary are special");
  EXPECT_EQ(
      message_of([](auto&) {}),
      "masking: a token is 1000, and the vocabulary has 1000 tokens; use the tokenizer that the data was prepared "
      "with");
}

}  // namespace
}  // namespace data::order
