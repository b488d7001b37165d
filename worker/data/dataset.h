#pragma once

#include <cstdint>
#include <span>

namespace worker {

/// A token sequence cut into samples of `sequence_length` inputs. The targets of a sample are its tokens shifted by
/// one. The last samples are for validation. Does not own the tokens.
class TokenDataset {
 public:
  /// Throws UsageError naming key, value and remedy when the tokens are too few for one training sample.
  TokenDataset(std::span<const std::uint16_t> tokens, std::int64_t sequence_length, double validation_fraction);

  std::int64_t train_samples() const { return train_; }
  /// At least 1 when the fraction is above 0, otherwise 0.
  std::int64_t validation_samples() const { return validation_; }
  std::int64_t sequence_length() const { return length_; }

  /// Copies sample `index` of [0, train_samples + validation_samples); validation samples come last. `inputs` and
  /// `targets` each have room for sequence_length numbers.
  void copy_sample(std::int64_t index, std::int64_t* inputs, std::int64_t* targets) const;

 private:
  std::span<const std::uint16_t> tokens_;
  std::int64_t length_, train_ = 0, validation_ = 0;
};

}  // namespace worker
