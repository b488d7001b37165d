#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace worker {

/// The keys and values of one attention layer for the tokens that a model has read, so that the next token costs one
/// row. Memory is taken once. Not for training: the values are overwritten in place.
struct KeyValues {
  at::Tensor keys, values;  ///< [batch, key/value heads, capacity, d]; the first `length` positions count
  std::int64_t length = 0;

  /// Appends keys and values [batch, key/value heads, n, d]. Throws c10::Error when they exceed the capacity.
  void append(const at::Tensor& more_keys, const at::Tensor& more_values);
  /// What counts: views [batch, key/value heads, length, d].
  at::Tensor all_keys() const { return keys.narrow(2, 0, length); }
  at::Tensor all_values() const { return values.narrow(2, 0, length); }
};

/// Of each layer.
using Cache = std::vector<KeyValues>;

/// Without a token yet. One layer holds 2 x batch x heads x capacity x d elements.
Cache empty_cache(std::int64_t layers, at::IntArrayRef shape, const at::TensorOptions& options);

}  // namespace worker
