#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>

namespace worker {

/// Which keys a query of attention sees. At most one of the two is set. Neither: a query sees all keys.
struct Mask {
  /// Bool (true: sees) or in the dtype of the queries (added to the scores); broadcasts to [batch, heads, queries,
  /// keys].
  at::Tensor bias;
  /// Query i sees the keys 0..i, without memory for a mask.
  bool causal = false;
};

Mask causal_mask();

/// `queries` new tokens after `before` cached ones: query i sees the keys 0..before + i.
Mask continued_mask(std::int64_t before, std::int64_t queries, at::Device device);

/// For rows that hold several documents. `segment_ids` [rows, positions] numbers the documents of each row, and 0 is
/// padding. A token sees itself and what comes before it in the same document. Padding sees padding, because a row of
/// the softmax without any key would be NaN. The mask is bool [rows, 1, positions, positions].
Mask segment_mask(const at::Tensor& segment_ids);

/// `attention_mask` [batch, keys] is true or above 0 where a key counts. The mask is bool [batch, 1, 1, keys]. A row
/// without any key that counts sees all its keys, so that its result is finite.
Mask padding_mask(const at::Tensor& attention_mask);

}  // namespace worker
