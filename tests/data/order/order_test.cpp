#include "data/order/order.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <stdexcept>
#include <string>

namespace data::order {
namespace {

using ::testing::ElementsAre;
using Samples = std::vector<std::int64_t>;

Samples take(Order& order, std::int64_t begin, std::int64_t count) {
  Samples out;
  for (auto position = begin; position < begin + count; ++position) out.push_back(order.at(position));
  return out;
}

Samples sorted(Samples samples) {
  std::sort(samples.begin(), samples.end());
  return samples;
}

Samples first_numbers(std::int64_t count) {
  Samples out(static_cast<std::size_t>(count));
  std::iota(out.begin(), out.end(), 0);
  return out;
}

/// Without a pattern between neighbours: 1 to 500 tokens.
std::int32_t length_of(std::int64_t sample) {
  return static_cast<std::int32_t>(splitmix(static_cast<std::uint64_t>(sample) * kSplitmixStride) % 500) + 1;
}

OrderOptions buckets(std::int64_t samples, std::int64_t batch_size, std::int64_t bucket_batches) {
  return {
      .samples = samples, .seed = 3, .batch_size = batch_size, .bucket_batches = bucket_batches, .length = length_of};
}

/// The share of a batch that is padding when all its samples are padded to the longest.
double padding(Order& order, std::int64_t batch_size, std::int64_t batches) {
  std::int64_t tokens = 0, padded = 0;
  for (std::int64_t batch = 0; batch < batches; ++batch) {
    std::int32_t longest = 0;
    for (const auto sample : take(order, batch * batch_size, batch_size)) {
      tokens += length_of(sample);
      longest = std::max(longest, length_of(sample));
    }
    padded += longest * batch_size;
  }
  return 1 - static_cast<double>(tokens) / static_cast<double>(padded);
}

// Checkpoints of earlier programs go on in this order.
TEST(Order, WithoutBucketsIsTheOneThatCheckpointsHave) {
  Order order({.samples = 100, .seed = 7});
  EXPECT_EQ(order.rule(), 2);
  EXPECT_THAT(take(order, 0, 8), ElementsAre(26, 36, 55, 98, 92, 45, 5, 38));
  EXPECT_THAT(take(order, 300, 4), ElementsAre(2, 63, 57, 60));
}

TEST(Order, OfBucketsKeepsItsNumber) {
  Order order(buckets(100, 4, 5));
  EXPECT_EQ(order.rule(), 3);
  EXPECT_THAT(take(order, 0, 8), ElementsAre(73, 42, 77, 72, 32, 21, 10, 98));
  EXPECT_THAT(take(order, 300, 4), ElementsAre(48, 35, 89, 22));
}

TEST(Order, AnEpochIsAPermutation) {
  for (const std::int64_t samples : {1, 2, 7, 31, 32, 33, 100, 257}) {
    for (const std::int64_t batch_size : {1, 3, 32, 300}) {
      for (const std::int64_t bucket_batches : {0, 1, 4, 1000}) {
        Order order(buckets(samples, batch_size, bucket_batches));
        for (std::int64_t epoch = 0; epoch < 4; ++epoch) {
          EXPECT_EQ(sorted(take(order, epoch * samples, samples)), first_numbers(samples))
              << samples << " samples, batches of " << batch_size << ", buckets of " << bucket_batches;
          EXPECT_EQ(order.epoch(epoch * samples), epoch);
        }
      }
    }
  }
}

TEST(Order, APositionHasOneSampleHoweverItIsReached) {
  for (const std::int64_t bucket_batches : {0, 3}) {
    Order straight(buckets(50, 8, bucket_batches));
    const auto expected = take(straight, 0, 200);
    for (std::int64_t begin = 0; begin < 150; ++begin) {
      Order resumed(buckets(50, 8, bucket_batches));
      EXPECT_EQ(take(resumed, begin, 50), Samples(expected.begin() + begin, expected.begin() + begin + 50)) << begin;
    }
    Order backwards(buckets(50, 8, bucket_batches));
    for (std::int64_t position = 199; position >= 0; --position) {
      EXPECT_EQ(backwards.at(position), expected[static_cast<std::size_t>(position)]);
    }
  }
}

// Goal: neighbouring seeds, as in a sweep, and neighbouring epochs give independent orders.
// Method: two independent orders agree at one of kSamples positions by chance. So about one position agrees in all, at
// any shift against each other.
TEST(Order, OfNeighbouringSeedsAndEpochsHaveNothingInCommon) {
  constexpr std::int64_t kSamples = 2000, kEpoch = 5, kMostByChance = 8;
  std::map<std::string, Samples> orders;
  for (const std::uint64_t seed : {0u, 1u, 2u, 3u}) {
    Order order({.samples = kSamples, .seed = seed});
    for (const std::int64_t epoch : {kEpoch, kEpoch + 1}) {
      orders["seed " + std::to_string(seed) + ", epoch " + std::to_string(epoch)] =
          take(order, epoch * kSamples, kSamples);
    }
  }
  for (const auto& [name_a, a] : orders) {
    for (const auto& [name_b, b] : orders) {
      for (std::size_t lag = 0; lag <= 3 && name_a != name_b; ++lag) {
        std::int64_t agree = 0;
        for (std::size_t k = 0; k + lag < a.size(); ++k) agree += a[k] == b[k + lag] ? 1 : 0;
        EXPECT_LE(agree, kMostByChance) << name_a << " and " << name_b << ", " << lag << " later";
      }
    }
  }
}

// Goal: buckets do what they are for, in every epoch.
// Method: 1,000 samples make 31 batches and a quarter, so the later epochs begin inside of a total batch.
TEST(Order, OfBucketsTakesMostOfThePaddingAway) {
  Order plain({.samples = 1000, .seed = 3}), bucketed(buckets(1000, 32, 10));
  const double before = padding(plain, 32, 125), after = padding(bucketed, 32, 125);
  RecordProperty("padding_before", std::to_string(before));
  RecordProperty("padding_after", std::to_string(after));
  EXPECT_GT(before, 0.45);
  EXPECT_LT(after, 0.12);
}

TEST(Order, BatchesOfABucketComeInRandomOrderAndDifferByEpoch) {
  Order order(buckets(320, 32, 10));
  const auto shortest_of_batches = [&](std::int64_t epoch) {
    std::vector<std::int32_t> out;
    for (std::int64_t batch = 0; batch < 10; ++batch) out.push_back(length_of(order.at(epoch * 320 + batch * 32)));
    return out;
  };
  const auto first = shortest_of_batches(0), second = shortest_of_batches(1);
  EXPECT_FALSE(std::is_sorted(first.begin(), first.end()));
  EXPECT_FALSE(std::is_sorted(second.begin(), second.end()));
  EXPECT_NE(first, second);
}

TEST(Order, EqualLengthsStayInShuffledOrder) {
  auto options = buckets(90, 9, 10);
  options.length = [](std::int64_t) { return 5; };
  Order order(options);
  const auto batch = take(order, 0, 9);
  EXPECT_FALSE(std::is_sorted(batch.begin(), batch.end()));
}

TEST(Order, WithoutShuffleCountsUpOrSortsByLengthAlone) {
  Order plain({.samples = 5, .shuffle = false});
  EXPECT_THAT(take(plain, 3, 4), ElementsAre(3, 4, 0, 1));
  auto options = buckets(64, 8, 8);
  options.shuffle = false;
  Order sorted_by_length(options);
  const auto samples = take(sorted_by_length, 0, 64);
  EXPECT_TRUE(std::is_sorted(samples.begin(), samples.end(),
                             [](std::int64_t a, std::int64_t b) { return length_of(a) < length_of(b); }));
}

TEST(Order, RefusesOptionsOutsideTheirRange) {
  const std::pair<OrderOptions, const char*> cases[] = {
      {{.samples = 0}, "order of samples: samples is 0; it must be at least 1"},
      {{.bucket_batches = -1}, "order of samples: bucket_batches is -1; it must be at least 0"},
      {buckets(10, 0, 2), "order of samples: batch_size is 0; buckets need at least 1"},
      {buckets(10, std::int64_t{1} << 40, std::int64_t{1} << 40),
       "order of samples: bucket_batches is 1099511627776; a bucket must have less than 2^63 samples"},
      {{.batch_size = 4, .bucket_batches = 2}, "order of samples: length is missing; buckets need it"}};
  for (const auto& [options, message] : cases) {
    try {
      Order order(options);
      ADD_FAILURE() << message;
    } catch (const std::invalid_argument& error) {
      EXPECT_EQ(error.what(), std::string(message));
    }
  }
}

}  // namespace
}  // namespace data::order
