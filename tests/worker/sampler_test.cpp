#include "data/sampler.h"

#include <gmock/gmock.h>

#include <algorithm>
#include <map>
#include <numeric>
#include <string>

namespace worker {
namespace {

using Samples = std::vector<std::int64_t>;

/// The samples of one total batch over all ranks, with `micro` per rank at once.
Samples total_batch(std::vector<ShardedSampler>& ranks, std::int64_t batch, std::int64_t micro) {
  Samples out;
  for (std::int64_t done = 0; done < batch; done += micro * static_cast<std::int64_t>(ranks.size())) {
    for (auto& rank : ranks) {
      for (const auto sample : rank.take(micro)) out.push_back(sample);
    }
  }
  return out;
}

std::vector<ShardedSampler> samplers(std::int64_t samples, std::uint64_t seed, int world_size) {
  std::vector<ShardedSampler> out;
  for (int rank = 0; rank < world_size; ++rank) out.emplace_back(samples, seed, rank, world_size);
  return out;
}

TEST(Sampler, EverySampleComesOnceAnEpochOverAllRanks) {
  auto ranks = samplers(20, 1, 4);
  Samples first = total_batch(ranks, 20, 5), second = total_batch(ranks, 20, 1);
  EXPECT_EQ(ranks[0].epoch(), 2);
  EXPECT_NE(first, second);
  Samples all(20);
  std::iota(all.begin(), all.end(), 0);
  for (auto* epoch : {&first, &second}) {
    EXPECT_FALSE(std::is_sorted(epoch->begin(), epoch->end()));
    std::sort(epoch->begin(), epoch->end());
    EXPECT_EQ(*epoch, all);
  }
}

TEST(Sampler, NothingIsDroppedWhereABatchSpansTwoEpochs) {
  auto ranks = samplers(7, 3, 2);
  Samples seen;
  for (int i = 0; i < 7; ++i) {
    for (const auto sample : total_batch(ranks, 4, 2)) seen.push_back(sample);
  }
  for (std::int64_t sample = 0; sample < 7; ++sample) EXPECT_EQ(std::count(seen.begin(), seen.end(), sample), 4);
}

TEST(Sampler, TheTotalBatchIsTheSameAtEveryWorldSize) {
  for (const auto& [world_size, micro] : {std::pair{1, 12}, {2, 6}, {2, 3}, {3, 2}, {4, 1}}) {
    auto one = samplers(50, 9, 1), many = samplers(50, 9, world_size);
    for (int batch = 0; batch < 10; ++batch) {
      Samples expected = total_batch(one, 12, 12), got = total_batch(many, 12, micro);
      std::sort(expected.begin(), expected.end());
      std::sort(got.begin(), got.end());
      EXPECT_EQ(got, expected) << world_size << " ranks, batch " << batch;
    }
  }
}

TEST(Sampler, GoesOnAtTheExactSampleEvenAtAnotherWorldSize) {
  auto before = samplers(33, 5, 2);
  for (int i = 0; i < 9; ++i) total_batch(before, 8, 2);
  auto after = samplers(33, 5, 4);
  for (auto& rank : after) rank.seek(before[0].position());
  Samples expected = total_batch(before, 8, 4), got = total_batch(after, 8, 2);
  EXPECT_EQ(got, expected);
}

TEST(Sampler, TheSeedDecidesTheOrder) {
  auto a = samplers(100, 1, 1), b = samplers(100, 2, 1), again = samplers(100, 1, 1);
  const Samples first = a[0].take(100);
  EXPECT_NE(first, b[0].take(100));
  EXPECT_EQ(first, again[0].take(100));
}

// Goal: a change of the order comes with a new number. Otherwise checkpoints would silently continue in another order.
TEST(Sampler, AnOrderKeepsItsNumber) {
  ShardedSampler sampler(100, 7, 0, 1);
  EXPECT_EQ(ShardedSampler::kOrder, 2);
  EXPECT_THAT(sampler.take(8), ::testing::ElementsAre(26, 36, 55, 98, 92, 45, 5, 38));
  sampler.seek(300);
  EXPECT_THAT(sampler.take(4), ::testing::ElementsAre(2, 63, 57, 60));
}

// Goal: neighbouring seeds, as in a sweep, and neighbouring epochs give independent orders.
// Method: two independent orders agree at one of kSamples positions by chance. So about one position agrees in all, at
// any shift against each other.
TEST(Sampler, NeighbouringSeedsAndEpochsHaveNothingInCommon) {
  constexpr std::int64_t kSamples = 2000, kEpoch = 5, kMostByChance = 8;
  std::map<std::string, Samples> orders;
  for (const std::uint64_t seed : {0u, 1u, 2u, 3u}) {
    ShardedSampler sampler(kSamples, seed, 0, 1);
    sampler.seek(kEpoch * kSamples);
    for (const int epoch : {0, 1}) {
      orders["seed " + std::to_string(seed) + ", epoch " + std::to_string(epoch)] = sampler.take(kSamples);
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

}  // namespace
}  // namespace worker
