#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/order/random.h"

namespace worker {

// [Note: tensors of a batch] Names, types and shapes, where b is the number of samples. Rows are padded to the longest
// one of the batch, rounded up to kPaddedTo. Ranks may have batches of different lengths at the same time, and no
// collective depends on them.
//
//   rows of a stream     input_ids, targets            int64 [b, L], without padding
//   packed documents     input_ids, targets            int64 [b, L]
//                        position_ids                  int64 [b, L]: from 0 in each document
//                        document_starts               int32 [n + 1]: where each of document_lengths begins in the
//                                                      flattened rows, and the end of the last one
//   pairs, spans         input_ids                     int64 [b, S]
//                        attention_mask                bool  [b, S]: whether a token is none of the padding
//                        targets                       int64 [b, T]
//   masked               input_ids, attention_mask, targets, as above [b, L]
//                        token_type_ids                int64 [b, L]: zeros
//                        masked                        int64 [m]: places of the m targets in the flattened targets
//   labelled             input_ids, attention_mask, token_type_ids, as above [b, L]
//                        labels                        int64 [b]
//   images               pixels                        fp32  [b, 3, G, G]
//                        labels                        int64 [b]: -1 is none
//   crops                global_crops                  fp32  [2b, 3, G, G]: all first views, then all second ones
//                        local_crops                   fp32  [n b, 3, l, l]
//                        masks                         bool  [2b, patches]
//                        masked                        int64 [m]: places in the flattened masks
//                        mask_weight                   fp32  [m]
//
// `targets` are the tokens that a position has to predict, without any further shift, and kNoTarget where nothing
// counts. The only exception is the decoder of an encoder-decoder, which makes its inputs by a shift of its targets.

/// One micro-batch.
struct Batch {
  std::map<std::string, at::Tensor, std::less<>> tensors;  ///< on the host; see [Note: tensors of a batch]
  /// Lengths of packed documents in tokens: by row, and in a row by place. The padding of a row is one, too. The host
  /// needs them wherever the tensors are.
  std::vector<std::int64_t> document_lengths;
  std::int64_t samples = 0;
  std::int64_t tokens = 0;  ///< without padding; of images: patches are the model's, so 0
  /// Divisor of the losses of the batch's targets, summed over all ranks and micro-batches of a step. Known from the
  /// data alone. May be 0.
  double weight = 0;

  /// Throws std::logic_error naming the tensor and those that the batch has: the recipe asks its source for something
  /// that the source never makes.
  const at::Tensor& at(std::string_view name) const;
  bool has(std::string_view name) const { return tensors.find(name) != tensors.end(); }

  /// The batch with its tensors on `device`. From pinned memory the copies are queued, and the host goes on.
  Batch to(at::Device device) const;
  /// The batch with its tensors in pinned memory, as copies to GPUs want it.
  Batch pinned() const;
};

/// Rows are padded to a multiple of this, because matrix products are fast at such sizes.
inline constexpr std::int64_t kPaddedTo = 8;

/// The samples of a split, and how they become batches. Thread-safe: the threads of a Loader call collate() at the same
/// time. A source has no state that changes.
class BatchSource {
 public:
  virtual ~BatchSource() = default;

  /// Samples of an epoch, at least 1.
  virtual std::int64_t samples() const = 0;

  /// How long a sample in [0, samples()) is, in tokens. Never changes. For an Order with buckets.
  virtual std::int32_t length(std::int64_t /*sample*/) const { return 1; }

  /// The batch of these samples, in this order. `draws` has the seed of what is random about each; see sample_draw().
  /// The batch depends on both arguments only. Throws std::out_of_range for a sample that is not there.
  virtual Batch collate(std::span<const std::int64_t> samples, std::span<const std::uint64_t> draws) const = 0;
};

/// The seed of what is random about a sample in an epoch: masks, spans, crops. The seed knows no rank and no place in
/// the batch, so batches are equal at every world size.
constexpr std::uint64_t sample_draw(std::uint64_t seed, std::int64_t epoch, std::int64_t sample) {
  const auto of_epoch = data::order::splitmix(data::order::splitmix(seed) +
                                              static_cast<std::uint64_t>(epoch) * data::order::kSplitmixStride);
  return data::order::splitmix(of_epoch + static_cast<std::uint64_t>(sample));
}

using TokenRows = std::vector<std::vector<std::int64_t>>;

/// The length that rows are padded to: that of the longest row, at least 1, rounded up to kPaddedTo, but at most
/// `most`, which no row exceeds.
std::int64_t padded_length(std::int64_t longest, std::int64_t most);
std::int64_t padded_length(const TokenRows& rows, std::int64_t most);

/// The rows with `pad` after their tokens: int64 [rows, length].
at::Tensor padded(const TokenRows& rows, std::int64_t length, std::int64_t pad);

/// True for the tokens of the rows, false for what padded() adds: bool [rows, length].
at::Tensor attention_mask(const TokenRows& rows, std::int64_t length);

/// A list as int64 [n].
at::Tensor to_tensor(const std::vector<std::int64_t>& values);

/// The tensor document_starts of these lengths. Throws c10::Error for a sum of 2^31 tokens and more.
at::Tensor document_starts(const std::vector<std::int64_t>& lengths);

std::int64_t count_tokens(const TokenRows& rows);

}  // namespace worker
