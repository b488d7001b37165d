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

namespace {

/// Rows while they are filled.
class Packer {
 public:
  explicit Packer(std::int64_t length) : length_(length) {}

  void add(const Piece& piece) {
    if (piece.length == length_) {  // needs no room, so it closes no other row
      rows_.emplace_back().pieces.push_back(piece);
      return;
    }
    auto open = std::find_if(open_.begin(), open_.end(), [&](const Open& one) { return one.room >= piece.length; });
    if (open == open_.end()) {
      if (open_.size() == kOpenRows) open_.erase(open_.begin());
      open = open_.insert(open_.end(), {rows_.size(), length_});
      rows_.emplace_back();
    }
    rows_[open->row].pieces.push_back(piece);
    open->room -= piece.length;
    if (open->room == 0) open_.erase(open);
  }

  std::vector<PackedRow> take_rows() { return std::move(rows_); }

 private:
  struct Open {
    std::size_t row;
    std::int64_t room;  // tokens
  };

  std::int64_t length_;
  std::vector<PackedRow> rows_;
  std::vector<Open> open_;  // the oldest first
};

void check_packing(std::span<const std::int32_t> lengths, std::int64_t length) {
  if (length < 1) {
    throw std::invalid_argument("packing: rows of " + std::to_string(length) + " tokens; a row needs at least 1");
  }
  const auto negative = std::find_if(lengths.begin(), lengths.end(), [](std::int32_t one) { return one < 0; });
  if (negative == lengths.end()) return;
  throw std::invalid_argument("packing: record " + std::to_string(negative - lengths.begin()) + " has a length of " +
                              std::to_string(*negative) + " tokens; it must be at least 0");
}

}  // namespace

std::vector<PackedRow> pack(std::uint64_t seed, std::span<const std::int32_t> lengths, std::int64_t length) {
  check_packing(lengths, length);
  if (lengths.empty()) return {};
  const auto records = static_cast<std::int64_t>(lengths.size());
  Order order({.samples = records, .seed = seed});
  Packer packer(length);
  for (std::int64_t position = 0; position < records; ++position) {
    const auto record = order.at(position);
    const std::int64_t tokens = lengths[static_cast<std::size_t>(record)];
    for (std::int64_t begin = 0; begin < tokens; begin += length) {
      packer.add({record, begin, std::min(length, tokens - begin)});
    }
  }
  return packer.take_rows();
}

}  // namespace data::order
