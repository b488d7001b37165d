#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "worker/models/layers/attention.h"
#include "worker/models/layers/layers.h"

namespace worker {

/// Input that a causal model reads.
struct Rows {
  /// `ids` alone: rows of one text each.
  Rows(at::Tensor token_ids, at::Tensor segment_ids = {}, at::Tensor position_ids = {})
      : ids(std::move(token_ids)), segments(std::move(segment_ids)), positions(std::move(position_ids)) {}

  at::Tensor ids;        ///< int64 [batch, positions]
  at::Tensor segments;   ///< int [batch, positions]: numbers of the documents in a row, 0 for padding; may be undefined
  at::Tensor positions;  ///< int64 [batch, positions], each document's from 0; may be undefined: 0, 1, 2, ..
};

/// Mask for what tokens see of the ones before them: their own document, and with a cache all tokens in the cache. Rows
/// that go on a cache have no segments.
Mask mask_of(const Rows& rows, const Cache* cache);

/// A decoder that predicts the next token of a text. Families derive from it and give hidden() and head(); the calls
/// through the wrapper, the loss and generation are the same for all of them. A model knows nothing of sharding. Its
/// parameters are fp32 and have Hugging Face's names.
///
/// The root's wrapper and those of the blocks own the calls, so with a sharding engine all ranks must make the same
/// calls of forward(), hidden_states(), loss() and next() in the same order.
class CausalModel : public torch::nn::Module, public Wrapped {
 public:
  /// Logits [batch, positions, vocab]. Throws c10::Error for more positions than the model takes.
  at::Tensor forward(const Rows& rows) const;

  /// The input of the head, which is the output of the last block after the final norm: [batch, positions, hidden].
  at::Tensor hidden_states(const Rows& rows) const;

  /// The sum of the cross entropies of the targets, int64 [batch, positions], without all logits at once; see
  /// linear_cross_entropy().
  at::Tensor loss(const Rows& rows, const at::Tensor& targets) const;

  /// Reads more tokens, int64 [batch, n], after those in `cache`, and returns the logits of the last one, [batch,
  /// vocab]. The cache then has these tokens, too. Throws c10::Error where gradients are recorded, for a cache of
  /// another number of layers, and for more positions than the model or the cache takes.
  at::Tensor next(const at::Tensor& ids, Cache& cache) const;

  /// A cache without tokens for next(). `dtype` and `device` are those of the activations.
  virtual Cache cache(std::int64_t batch, std::int64_t capacity, at::ScalarType dtype, at::Device device) const = 0;

  virtual std::vector<std::shared_ptr<Block>> blocks() const = 0;

 protected:
  /// The input of the head: [batch, positions, hidden]. With a cache, `rows` are the tokens after it.
  virtual at::Tensor hidden(const Rows& rows, Cache* cache) const = 0;
  /// The factors of the logits. `hidden` is what the head reads.
  virtual Factors head(const at::Tensor& hidden) const = 0;
};

}  // namespace worker
