#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>

#include "spec/tables/t5.h"

namespace worker {

/// The buckets of relative positions (key minus query), int64 of any shape, as T5 has them (Raffel et al., arXiv
/// 1910.10683, section 2.1). Half of the buckets hold one distance each. The others grow with the logarithm up to
/// `max_distance`, and the last one has all that is longer. `bidirectional`: keys after the query have the upper half
/// of the buckets. Otherwise they are in the bucket of distance 0, because a mask hides them.
at::Tensor t5_buckets(const at::Tensor& relative, bool bidirectional, std::int64_t buckets, std::int64_t max_distance);

/// What T5 adds to the scores of attention in place of positions: one number for each bucket and head, which trains.
class T5RelativeBias : public torch::nn::Module {
 public:
  T5RelativeBias(const spec::T5& config, bool bidirectional);
  /// For queries at the positions begin, begin + 1, .. and keys from position 0 on: [1, heads, queries, keys] in the
  /// weight's dtype.
  at::Tensor forward(std::int64_t begin, std::int64_t queries, std::int64_t keys) const;

  at::Tensor weight;  ///< [buckets, heads]

 private:
  bool bidirectional_;
  std::int64_t max_distance_;
};

/// A mask to be added to scores of that dtype: 0 where `sees` (bool) is true, and the lowest finite number elsewhere.
at::Tensor t5_penalty(const at::Tensor& sees, at::ScalarType dtype);

}  // namespace worker
