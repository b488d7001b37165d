#include "data/dataset.h"

#include <algorithm>
#include <string>

#include "rank/errors.h"

namespace worker {

TokenDataset::TokenDataset(std::span<const std::uint16_t> tokens, std::int64_t sequence_length,
                           double validation_fraction)
    : tokens_(tokens), length_(sequence_length) {
  const auto count = static_cast<std::int64_t>(tokens.size());
  const std::int64_t samples = count > 0 ? (count - 1) / length_ : 0;
  if (validation_fraction > 0) {
    validation_ =
        std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(samples) * validation_fraction));
  }
  train_ = samples - validation_;
  if (train_ < 1) {
    throw UsageError("data.sequence_length = " + std::to_string(length_) + ": the text has only " +
                     std::to_string(count) +
                     " tokens, too few for one training sample beside validation; give more text "
                     "or a shorter sequence");
  }
}

void TokenDataset::copy_sample(std::int64_t index, std::int64_t* inputs, std::int64_t* targets) const {
  const auto* start = tokens_.data() + index * length_;
  std::copy(start, start + length_, inputs);
  std::copy(start + 1, start + 1 + length_, targets);
}

}  // namespace worker
