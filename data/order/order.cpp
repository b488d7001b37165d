#include "data/order/order.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <string>
#include <utility>

namespace data::order {
namespace {

void require(bool holds, const char* option, std::int64_t value, const char* must) {
  if (!holds)
    throw std::invalid_argument("order of samples: " + std::string(option) + " is " + std::to_string(value) + must);
}

}  // namespace

Order::Order(OrderOptions options) : options_(std::move(options)) {
  require(options_.samples >= 1, "samples", options_.samples, "; it must be at least 1");
  require(options_.bucket_batches >= 0, "bucket_batches", options_.bucket_batches, "; it must be at least 0");
  if (options_.bucket_batches == 0) return;
  require(options_.batch_size >= 1, "batch_size", options_.batch_size, "; buckets need at least 1");
  require(options_.bucket_batches <= std::numeric_limits<std::int64_t>::max() / options_.batch_size, "bucket_batches",
          options_.bucket_batches, "; a bucket must have less than 2^63 samples");
  if (!options_.length) throw std::invalid_argument("order of samples: length is missing; buckets need it");
}

std::int64_t Order::at(std::int64_t position) {
  if (const auto number = epoch(position); number != made_) make(number);
  return order_[static_cast<std::size_t>(position % options_.samples)];
}

void Order::make(std::int64_t epoch) {
  order_.resize(static_cast<std::size_t>(options_.samples));
  std::iota(order_.begin(), order_.end(), std::int64_t{0});
  Random random(options_.seed, static_cast<std::uint64_t>(epoch));
  if (options_.shuffle) random.shuffle(order_);
  if (options_.bucket_batches > 0) sort_into_buckets(epoch, random);
  made_ = epoch;
}

void Order::sort_into_buckets(std::int64_t epoch, Random& random) {
  // The first places complete the total batch that the epoch before has begun.
  const auto begun = epoch * options_.samples % options_.batch_size;
  const auto bucket = options_.batch_size * options_.bucket_batches;
  auto begin = begun == 0 ? 0 : std::min(options_.samples, options_.batch_size - begun);
  while (begin < options_.samples) {
    const auto end = begin + std::min(bucket, options_.samples - begin);
    sort_bucket(begin, end, random);
    begin = end;
  }
}

void Order::sort_bucket(std::int64_t begin, std::int64_t end, Random& random) {
  std::vector<std::pair<std::int32_t, std::int64_t>> sorted;  // length and sample
  for (auto place = begin; place < end; ++place) {
    const auto sample = order_[static_cast<std::size_t>(place)];
    sorted.emplace_back(options_.length(sample), sample);
  }
  std::stable_sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) { return a.first < b.first; });
  // Samples that are left of the epoch after its last whole batch stay at the end, so that batches keep their places.
  const auto size = static_cast<std::size_t>(options_.batch_size);
  std::vector<std::size_t> batches(sorted.size() / size);
  std::iota(batches.begin(), batches.end(), std::size_t{0});
  if (options_.shuffle) random.shuffle(batches);
  auto place = static_cast<std::size_t>(begin);
  for (const auto batch : batches) {
    for (std::size_t i = 0; i < size; ++i) order_[place++] = sorted[batch * size + i].second;
  }
  for (auto i = batches.size() * size; i < sorted.size(); ++i) order_[place++] = sorted[i].second;
}

}  // namespace data::order
