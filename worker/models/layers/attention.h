#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "spec/rope_scaling.h"
#include "worker/models/fused_ops.h"

namespace worker {

/// The documents that the rows of a batch hold. Each token belongs to one; the padding of a row is a document, too. No
/// document goes on in the next row.
struct Documents {
  std::vector<std::int64_t> lengths;  ///< in tokens, above 0, by row and then by place; they sum up to all tokens
  /// Where each begins in the flattened rows, and the end of the last: int32 [documents + 1], on the device of the
  /// rows.
  at::Tensor starts;
};

/// Which keys a query of attention sees. At most one of the three is set. None: a query sees all keys.
struct Mask {
  /// Bool (true: sees) or in the dtype of the queries (added to the scores); broadcasts to [batch, heads, queries,
  /// keys].
  at::Tensor bias = {};
  /// Query i sees the keys 0..i, without memory for a mask.
  bool causal = false;
  /// A query sees itself and what comes before it in the same document, without memory for a mask.
  std::shared_ptr<const Documents> documents = nullptr;
};

Mask causal_mask();

/// Which of the tokens 0..before + queries - 1 the last `queries` ones see: bool [queries, before + queries].
at::Tensor earlier_keys(std::int64_t before, std::int64_t queries, at::Device device);

/// `queries` new tokens after `before` cached ones: query i sees the keys 0..before + i.
Mask continued_mask(std::int64_t before, std::int64_t queries, at::Device device);

/// `attention_mask` [batch, keys] is true or above 0 where a key counts. The mask is bool [batch, 1, 1, keys]. A row
/// without any key that counts sees all its keys, so that its result is finite.
Mask padding_mask(const at::Tensor& attention_mask);

/// Options of rotary position embedding.
struct RopeOptions {
  std::int64_t dim = 0;  ///< rotated elements of a head, an even number
  double theta = 10000;
  spec::RopeScaling type = spec::RopeScaling::kDefault;
  double factor = 1;  ///< of kLinear and kLlama3
  // Settings of kLlama3: a wavelength above original_positions / low_freq_factor is long, and one below
  // original_positions / high_freq_factor is short.
  double low_freq_factor = 1, high_freq_factor = 4;
  std::int64_t original_positions = 0;
};

/// The angles of the positions begin, begin + 1, .., as tables [count, dim]. They are computed in fp32 on `device` and
/// cast to `dtype`.
RopeTable rope_table(std::int64_t begin, std::int64_t count, const RopeOptions& options, at::ScalarType dtype,
                     at::Device device);

/// The angles of these positions, int64 [positions] or [batch, positions], as tables [.., positions, dim] on their
/// device.
RopeTable rope_table(const at::Tensor& positions, const RopeOptions& options, at::ScalarType dtype);

/// softmax(q k^T * scale + mask) v (Vaswani et al., 2017) with grouped key/value heads (Ainslie et al., GQA): query
/// head h reads key/value head h / (H / G). q is [batch, H, queries, d], k and v are [batch, G, keys, d], and G divides
/// H. The result is [batch, H, queries, d].
///
/// Without a `scale` it is 1 / sqrt(d). `dropout` is the share of the probabilities that training sets to zero.
///
/// LibTorch's scaled_dot_product_attention() computes it. A mask that needs a gradient takes plain products instead,
/// with a softmax in fp32, because the fused operation gives masks none: memory then holds the scores of all heads.
///
/// Documents are computed one by one, so memory and time grow with the square of no row. On GPUs that have it, one call
/// of the kernel for lists of lengths (Dao, FlashAttention-2, arXiv 2307.08691) computes all of them. Throws c10::Error
/// for documents that are not those of q.
at::Tensor attention(const at::Tensor& q, const at::Tensor& k, const at::Tensor& v, const Mask& mask,
                     std::optional<double> scale, double dropout, bool training);

/// [batch, positions, heads * d] -> [batch, heads, positions, d], as attention() takes it.
at::Tensor split_heads(const at::Tensor& x, std::int64_t heads);
/// [batch, heads, positions, d] -> [batch, positions, heads * d].
at::Tensor joined_heads(const at::Tensor& x);

/// The keys and values of one attention layer for the tokens that a model has read, so that the next token costs one
/// row. Memory is taken once. Not for training: the values are overwritten in place.
struct KeyValues {
  at::Tensor keys, values;  ///< [batch, key/value heads, capacity, d]; the first `length` positions count
  std::int64_t length = 0;

  /// Appends keys and values [batch, key/value heads, n, d]. Throws c10::Error when they exceed the capacity.
  void append(const at::Tensor& more_keys, const at::Tensor& more_values);
  /// Keys and values that count: views [batch, key/value heads, length, d].
  at::Tensor all_keys() const { return keys.narrow(2, 0, length); }
  at::Tensor all_values() const { return values.narrow(2, 0, length); }
};

/// Appends `keys` and `values` to those that are cached, and puts all that count in their place. Null: nothing is
/// cached.
void use_cache(KeyValues* cached, at::Tensor& keys, at::Tensor& values);

/// Keys and values of each layer.
using Cache = std::vector<KeyValues>;

/// Without a token yet. One layer holds 2 x batch x heads x capacity x d elements.
Cache empty_cache(std::int64_t layers, at::IntArrayRef shape, const at::TensorOptions& options);

}  // namespace worker
