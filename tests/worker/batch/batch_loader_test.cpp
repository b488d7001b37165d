// Goal: ranks get the batches of one order, whatever their number, their threads, and where they began.
// Method: a source whose batches hold the numbers of their samples and draws.
#include "worker/batch/loader.h"

#include <ATen/Parallel.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <functional>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>

#include "tests/worker/batch_folders.h"
#include "worker/batch/batch.h"

namespace worker {
namespace {

using testing::expect_equal;
using ::testing::HasSubstr;
using testing::message_of;
using testing::Numbers;
using testing::numbers_of;

class NumberedSamples : public BatchSource {
 public:
  explicit NumberedSamples(std::int64_t samples, std::function<void(const Numbers&)> made = {})
      : samples_(samples), made_(std::move(made)) {}

  std::int64_t samples() const override { return samples_; }
  std::int32_t length(std::int64_t sample) const override { return static_cast<std::int32_t>(sample * 7 % 13) + 1; }

  Batch collate(std::span<const std::int64_t> samples, std::span<const std::uint64_t> draws) const override {
    if (made_) made_({samples.begin(), samples.end()});
    Batch batch;
    batch.tensors = {{"samples", to_tensor({samples.begin(), samples.end()})},
                     {"draws", to_tensor({draws.begin(), draws.end()})}};
    batch.samples = static_cast<std::int64_t>(samples.size());
    for (const auto sample : samples) batch.tokens += length(sample);
    batch.weight = static_cast<double>(batch.tokens);
    return batch;
  }

 private:
  const std::int64_t samples_;
  const std::function<void(const Numbers&)> made_;
};

constexpr std::int64_t kSamples = 31, kBatch = 12;

data::order::Order order_of(const BatchSource& source, bool buckets) {
  return data::order::Order({.samples = source.samples(),
                             .seed = 5,
                             .batch_size = kBatch,
                             .bucket_batches = buckets ? 2 : 0,
                             .length = [&source](std::int64_t sample) { return source.length(sample); }});
}

Loader loader_of(std::shared_ptr<const BatchSource> source, int rank, int world_size, int threads,
                 bool buckets = false) {
  auto order = order_of(*source, buckets);
  return {std::move(source), std::move(order), rank, world_size, {.threads = threads, .seed = 9}};
}

using Drawn = std::pair<std::int64_t, std::int64_t>;  // a sample and its draw

std::vector<Drawn> drawn(const Batch& batch) {
  std::vector<Drawn> out;
  const auto samples = numbers_of(batch.at("samples")), draws = numbers_of(batch.at("draws"));
  for (std::size_t i = 0; i < samples.size(); ++i) out.emplace_back(samples[i], draws[i]);
  return out;
}

/// The samples of total batches, of all ranks together, each sorted.
std::vector<std::vector<Drawn>> total_batches(int world_size, int accumulation, bool buckets, int count) {
  const auto source = std::make_shared<NumberedSamples>(kSamples);
  std::vector<std::vector<Drawn>> out(static_cast<std::size_t>(count));
  for (int rank = 0; rank < world_size; ++rank) {
    Loader loader = loader_of(source, rank, world_size, 2, buckets);
    for (auto& total : out) {
      for (int i = 0; i < accumulation; ++i) {
        const auto part = drawn(loader.next(kBatch / world_size / accumulation));
        total.insert(total.end(), part.begin(), part.end());
      }
    }
  }
  for (auto& total : out) std::sort(total.begin(), total.end());
  return out;
}

TEST(Loader, TotalBatchesAreEqualAtEveryWorldSize) {
  for (const bool buckets : {false, true}) {
    const auto want = total_batches(1, 1, buckets, 9);
    for (const auto& [world_size, accumulation] : {std::pair{1, 4}, {2, 1}, {2, 3}, {3, 1}, {3, 2}}) {
      EXPECT_EQ(total_batches(world_size, accumulation, buckets, 9), want)
          << world_size << " ranks, accumulation " << accumulation << ", buckets " << buckets;
    }
  }
}

TEST(Loader, AnEpochHasEachSampleOnceAndADrawOfItsOwn) {
  Loader loader = loader_of(std::make_shared<NumberedSamples>(kSamples), 0, 1, 1, true);
  std::set<std::int64_t> draws;
  for (std::int64_t epoch = 0; epoch < 3; ++epoch) {
    std::set<std::int64_t> samples;
    for (std::int64_t i = 0; i < kSamples; ++i) {
      EXPECT_DOUBLE_EQ(loader.epoch(), static_cast<double>(epoch * kSamples + i) / kSamples);
      const auto one = drawn(loader.next(1)).front();
      samples.insert(one.first);
      draws.insert(one.second);
      EXPECT_EQ(static_cast<std::uint64_t>(one.second), sample_draw(9, epoch, one.first));
    }
    EXPECT_EQ(samples.size(), kSamples);
  }
  EXPECT_EQ(draws.size(), 3 * kSamples);
}

TEST(Loader, GoesOnAtEachPositionOfAnEpochAtAnotherWorldSize) {
  const auto source = std::make_shared<NumberedSamples>(kSamples);
  for (const bool buckets : {false, true}) {
    data::order::Order order = order_of(*source, buckets);
    for (const int world_size : {1, 2, 3}) {
      std::vector<Loader> ranks;
      for (int rank = 0; rank < world_size; ++rank) ranks.push_back(loader_of(source, rank, world_size, 1, buckets));
      for (std::int64_t position = 0; position < kSamples; ++position) {
        auto place = position;
        for (int rank = 0; rank < world_size; ++rank) {
          auto& loader = ranks[static_cast<std::size_t>(rank)];
          loader.seek(position);
          EXPECT_EQ(loader.position(), position);
          for (const auto& [sample, draw] : drawn(loader.next(2))) {
            EXPECT_EQ(sample, order.at(place)) << world_size << " ranks at " << position;
            EXPECT_EQ(static_cast<std::uint64_t>(draw), sample_draw(9, order.epoch(place), sample));
            ++place;
          }
          EXPECT_EQ(loader.position(), position + 2 * world_size);
        }
      }
    }
  }
}

TEST(Loader, BatchesAreEqualForEveryNumberOfThreads) {
  const auto source = std::make_shared<NumberedSamples>(kSamples);
  Loader alone = loader_of(source, 1, 2, 0), one = loader_of(source, 1, 2, 1), four = loader_of(source, 1, 2, 4);
  // Counts that change throw away what was made ahead.
  for (const std::int64_t count : {3, 3, 3, 3, 5, 5, 1, 3, 3, 3, 31, 3}) {
    const Batch want = alone.next(count);
    expect_equal(one.next(count), want);
    expect_equal(four.next(count), want);
    EXPECT_EQ(four.position(), alone.position());
  }
}

TEST(Loader, KeepsTheOrderHoweverLongABatchTakes) {
  std::mutex mutex;
  std::condition_variable changed;
  std::size_t made = 0;
  // The first batch is not ready before the three after it.
  const auto source = std::make_shared<NumberedSamples>(kSamples, [&, first = true](const Numbers&) mutable {
    std::unique_lock lock(mutex);
    if (std::exchange(first, false)) changed.wait(lock, [&] { return made == 3; });
    ++made;
    changed.notify_all();
  });
  Loader slow(source, order_of(*source, false), 0, 1, {.threads = 4, .ahead = 3, .seed = 9});
  Loader plain = loader_of(std::make_shared<NumberedSamples>(kSamples), 0, 1, 0);
  for (int i = 0; i < 4; ++i) expect_equal(slow.next(2), plain.next(2));
}

TEST(Loader, MakesAsManyBatchesAheadAsItMay) {
  std::mutex mutex;
  std::condition_variable changed;
  int made = 0;
  const auto source = std::make_shared<NumberedSamples>(kSamples, [&](const Numbers&) {
    const std::lock_guard lock(mutex);
    ++made;
    changed.notify_all();
  });
  Loader loader(source, order_of(*source, false), 0, 1, {.threads = 2, .ahead = 3, .seed = 9});
  for (int taken = 1; taken <= 5; ++taken) {
    loader.next(2);
    std::unique_lock lock(mutex);
    changed.wait(lock, [&] { return made == taken + 3; });
  }
  loader.next(2);
  loader = loader_of(std::make_shared<NumberedSamples>(kSamples), 0, 1, 0);  // waits for its threads
  EXPECT_LE(made, 6 + 3);
}

TEST(Loader, RethrowsWhatASourceThrewAtTheBatchThatItWasFor) {
  for (const int threads : {0, 1, 4}) {
    data::order::Order order({.samples = kSamples, .seed = 5});
    const std::int64_t bad = order.at(7);
    std::atomic<bool> throws = true;
    const auto source = std::make_shared<NumberedSamples>(kSamples, [&](const Numbers& samples) {
      const bool has_it = std::find(samples.begin(), samples.end(), bad) != samples.end();
      if (throws && has_it) throw std::runtime_error("sample " + std::to_string(bad) + " is damaged");
    });
    Loader loader = loader_of(source, 0, 1, threads);
    for (int i = 0; i < 3; ++i) loader.next(2);
    for (int again = 0; again < 2; ++again) {
      EXPECT_EQ(message_of<std::runtime_error>([&] { loader.next(2); }),
                "sample " + std::to_string(bad) + " is damaged");
      EXPECT_EQ(loader.position(), 6);
    }
    throws = false;
    EXPECT_EQ(numbers_of(loader.next(2).at("samples")).back(), bad);
    EXPECT_EQ(loader.position(), 8);
  }
}

// Goal: a batch does not depend on the number of threads that LibTorch may use, and the training keeps that number.
TEST(Loader, MakesABatchWithOneThreadOfLibTorch) {
  const int before = at::get_num_threads();
  at::set_num_threads(3);
  for (const int threads : {0, 1, 4}) {
    std::atomic<int> most = 0;
    const auto source = std::make_shared<NumberedSamples>(
        kSamples, [&](const Numbers&) { most = std::max<int>(most, at::get_num_threads()); });
    Loader loader = loader_of(source, 0, 1, threads);
    for (int i = 0; i < 5; ++i) loader.next(2);
    EXPECT_EQ(most, 1) << threads;
    EXPECT_EQ(at::get_num_threads(), 3);
    std::thread([&] { EXPECT_EQ(at::get_num_threads(), 3) << "a thread that comes later"; }).join();
  }
  at::set_num_threads(before);
}

TEST(Loader, CountsTheTimeThatItsCallerWaits) {
  Loader loader = loader_of(std::make_shared<NumberedSamples>(kSamples), 0, 1, 2);
  EXPECT_EQ(loader.waited_ms(), 0);
  loader.next(2);
  const double once = loader.waited_ms();
  EXPECT_GT(once, 0);
  loader.next(2);
  EXPECT_GT(loader.waited_ms(), once);
}

TEST(Loader, RefusesWhatItCannotServe) {
  const auto source = std::make_shared<NumberedSamples>(kSamples);
  const auto message = [&](int rank, int world_size, int threads, int ahead, std::int64_t samples) {
    return message_of<std::invalid_argument>([&] {
      Loader(source, data::order::Order({.samples = samples}), rank, world_size, {.threads = threads, .ahead = ahead});
    });
  };
  EXPECT_EQ(message(2, 2, 0, 0, kSamples), "loader of batches: rank is 2; it must be in [0, 2)");
  EXPECT_THAT(message(0, 0, 0, 0, kSamples), HasSubstr("world_size is 0; it must be at least 1"));
  EXPECT_THAT(message(0, 1, -1, 0, kSamples), HasSubstr("threads is -1; it must be at least 0"));
  EXPECT_THAT(message(0, 1, 1, 0, kSamples), HasSubstr("ahead is 0; threads need at least 1"));
  EXPECT_THAT(message(0, 1, 1, 1, 30),
              HasSubstr("the order's number of samples is 30; it must be that of the source, 31"));
  Loader loader = loader_of(source, 0, 1, 0);
  EXPECT_THAT(message_of<std::invalid_argument>([&] { loader.next(0); }), HasSubstr("samples is 0; a batch has"));
  EXPECT_THAT(message_of<std::invalid_argument>([&] { loader.seek(-1); }), HasSubstr("position is -1"));
}

TEST(BatchOfTensors, NamesWhatItLacks) {
  Batch batch;
  batch.tensors = {{"input_ids", at::Tensor()}, {"targets", at::Tensor()}};
  EXPECT_TRUE(batch.has("targets"));
  EXPECT_FALSE(batch.has("labels"));
  EXPECT_EQ(message_of<std::logic_error>([&] { batch.at("labels"); }),
            "a batch has no tensor \"labels\"; it has input_ids, targets");
}

}  // namespace
}  // namespace worker
