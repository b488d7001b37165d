// Goal: tokens are drawn with the probabilities that temperature and top_p give them. Method: many draws from known
// logits, counted against the exact probabilities.
#include "worker/generate/decode.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/worker/temporary_folder.h"

namespace worker {
namespace {

using ::testing::HasSubstr;
using testing::message_of;

const std::vector<double> kProbabilities{0.05, 0.4, 0.1, 0.3, 0.15};

std::vector<float> logits_of(const std::vector<double>& probabilities, double temperature = 1) {
  std::vector<float> logits;
  for (const double p : probabilities) logits.push_back(static_cast<float>(std::log(p) * temperature + 3));
  return logits;
}

constexpr int kDraws = 40'000;

/// How often each token came, as a share of all draws.
std::map<std::int64_t, double> shares(const std::vector<float>& logits, const Sampling& sampling) {
  std::map<std::int64_t, double> out;
  for (std::uint64_t i = 0; i < kDraws; ++i) out[pick(logits, sampling, draw_for(7, i % 100, i / 100))] += 1.0 / kDraws;
  return out;
}

/// Five standard deviations of a share, and the rounding of the sum.
double bound(double p) {
  return 5 * std::sqrt(p * (1 - p) / kDraws) + 1e-9;
}

void expect_shares(const std::map<std::int64_t, double>& got, const std::map<std::int64_t, double>& want) {
  ASSERT_EQ(got.size(), want.size());
  for (const auto& [token, p] : want) EXPECT_NEAR(got.at(token), p, bound(p)) << "token " << token;
}

TEST(Pick, TakesTheMostLikelyTokenWithoutATemperature) {
  EXPECT_EQ(pick(logits_of(kProbabilities), {}, 12345), 1);
  const std::vector<float> equal{1, 4, 4, 2};
  EXPECT_EQ(pick(equal, {}, 1), 1);
  const std::vector<float> masked{-std::numeric_limits<float>::infinity(), -3};
  EXPECT_EQ(pick(masked, {}, 1), 1);
}

TEST(Pick, DrawsByProbability) {
  expect_shares(shares(logits_of(kProbabilities), {.temperature = 1}),
                {{0, 0.05}, {1, 0.4}, {2, 0.1}, {3, 0.3}, {4, 0.15}});
}

TEST(Pick, ATemperatureDividesTheLogits) {
  expect_shares(shares(logits_of(kProbabilities, 2.5), {.temperature = 2.5}),
                {{0, 0.05}, {1, 0.4}, {2, 0.1}, {3, 0.3}, {4, 0.15}});
}

TEST(Pick, TopPKeepsTheTokensBeforeWhichLessThanItLies) {
  const auto logits = logits_of(kProbabilities);
  // Sorted: 0.4, 0.3, 0.15, 0.1, 0.05. Before the third lie 0.7, before the fourth 0.85.
  expect_shares(shares(logits, {.temperature = 1, .top_p = 0.8}), {{1, 0.4 / 0.85}, {3, 0.3 / 0.85}, {4, 0.15 / 0.85}});
  expect_shares(shares(logits, {.temperature = 1, .top_p = 0.39}), {{1, 1}});
  expect_shares(shares(logits, {.temperature = 1, .top_p = 1e-9}), {{1, 1}});
  expect_shares(shares(logits, {.temperature = 1, .top_p = 0.99}),
                {{0, 0.05}, {1, 0.4}, {2, 0.1}, {3, 0.3}, {4, 0.15}});
}

// Small tokens are dropped before the sort. That must not change what stays.
TEST(Pick, TopPOfALargeVocabularyKeepsWhatASortOfAllKeeps) {
  std::mt19937 random(3);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(5000);
  for (auto& logit : logits) logit = normal(random);
  for (const double top_p : {0.3, 0.9, 0.999}) {
    std::vector<std::pair<double, std::int64_t>> sorted;
    double sum = 0;
    for (std::size_t i = 0; i < logits.size(); ++i) {
      sorted.emplace_back(-std::exp(static_cast<double>(logits[i])), static_cast<std::int64_t>(i));
      sum -= sorted.back().first;
    }
    std::ranges::sort(sorted);
    std::vector<bool> stays(logits.size(), false);
    double before = 0, kept = 0;
    for (const auto& [weight, token] : sorted) {
      if (before >= top_p * sum) break;
      stays[static_cast<std::size_t>(token)] = true;
      before -= weight;
      kept = before;
    }
    // The largest draw gives the last token that stays, the smallest one the first.
    const Sampling sampling{.temperature = 1, .top_p = top_p};
    EXPECT_EQ(pick(logits, sampling, 0), sorted[0].second);
    std::int64_t last = 0;
    for (const auto& [weight, token] : sorted) {
      if (!stays[static_cast<std::size_t>(token)]) break;
      last = token;
    }
    EXPECT_EQ(pick(logits, sampling, ~std::uint64_t{0}), last) << top_p << " keeps " << kept / sum;
  }
}

TEST(Pick, RefusesLogitsThatAreNotNumbers) {
  const std::vector<float> nan{0, std::nanf(""), 1}, infinite{0, std::numeric_limits<float>::infinity()};
  for (const auto& logits : {nan, infinite}) {
    EXPECT_THAT(message_of<std::invalid_argument>([&] { pick(logits, {}, 0); }), HasSubstr("try fp32"));
  }
}

TEST(Pick, RefusesSettingsOutOfRange) {
  EXPECT_THAT(message_of<std::invalid_argument>([] { check({.temperature = -1}); }), HasSubstr("temperature"));
  EXPECT_THAT(message_of<std::invalid_argument>([] { check({.top_p = 0}); }), HasSubstr("top_p"));
  EXPECT_THAT(message_of<std::invalid_argument>([] { check({.top_p = 1.5}); }), HasSubstr("top_p"));
  EXPECT_THAT(message_of<std::invalid_argument>([] { check({.max_new_tokens = -1}); }), HasSubstr("new tokens"));
}

TEST(DrawFor, IsTheSameOnEveryMachineAndOfEachRowItsOwn) {
  EXPECT_EQ(draw_for(1, 2, 3), draw_for(1, 2, 3));
  std::map<std::uint64_t, int> seen;
  for (std::uint64_t seed = 0; seed < 8; ++seed)
    for (std::uint64_t row = 0; row < 8; ++row)
      for (std::uint64_t token = 0; token < 8; ++token) ++seen[draw_for(seed, row, token)];
  EXPECT_EQ(seen.size(), 512U);
}

}  // namespace
}  // namespace worker
