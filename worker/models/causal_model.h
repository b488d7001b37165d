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
  Rows(at::Tensor token_ids, std::shared_ptr<const Documents> of_rows = {}, at::Tensor position_ids = {})
      : ids(std::move(token_ids)), documents(std::move(of_rows)), positions(std::move(position_ids)) {}

  at::Tensor ids;                              ///< int64 [batch, positions]
  std::shared_ptr<const Documents> documents;  ///< that do not see each other; may be null: a row is one text
  at::Tensor positions;  ///< int64 [batch, positions], each document's from 0; may be undefined: 0, 1, 2, ..
};

/// Mask for what tokens see of the ones before them: their own document, and with a cache all tokens in the cache. Rows
/// that go on a cache have no documents.
Mask mask_of(const Rows& rows, const Cache* cache);

/// Data that every layer of a decoder with rotary positions shares in one call. Copies are cheap.
struct DecoderContext {
  RopeTable rope;
  Mask mask;
};

/// That of rows which follow the tokens in `cache`, with tables of `dtype`. Throws c10::Error with the name of the
/// family for ids of another shape, and for more positions than `most`.
DecoderContext context_of(const char* family, const Rows& rows, const Cache* cache, std::int64_t most,
                          const RopeOptions& rope, at::ScalarType dtype);

/// A decoder that predicts the next token of a text. Families derive from it and give its parts; the calls through the
/// wrappers, the loss and generation are the same for all of them. A model knows nothing of sharding. Its parameters
/// are fp32 and have Hugging Face's names.
///
/// The wrappers of the root, the blocks and the outer parts own the calls, so with a sharding engine all ranks must
/// make the same calls of forward(), hidden_states(), loss() and next() in the same order.
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
  /// The output of the last block: [batch, positions, hidden]. With a cache, `rows` are the tokens after it.
  virtual at::Tensor hidden(const Rows& rows, Cache* cache) const = 0;
  /// The part whose call has final_norm() and head(): the head, or the embedding where the two are tied. Null: they
  /// belong to the root.
  virtual const OuterPart* last_part() const { return nullptr; }
  /// The input of the head, from hidden().
  virtual at::Tensor final_norm(const at::Tensor& x) const { return x; }
  /// The factors of the logits, from the input of the head.
  virtual Factors head(const at::Tensor& hidden) const = 0;

 private:
  /// `use` of the input of the head, as one call of the last part.
  template <class Use>
  at::Tensor at_head(at::Tensor x, Use use) const;
  /// at_head() of rows, as one call of the root.
  template <class Use>
  at::Tensor through(const Rows& rows, Use use) const;
};

/// A causal model of the usual parts: a trunk of embedding, blocks and final norm, and a head that is a table of its
/// own, or the embedding where the two are tied.
///
/// `Config` has sizes by transformers' names and head_size(); `Trunk` is made of it, and has forward() of rows and
/// cache up to the last block, layers, embedding and final_norm.
template <class Config, class Trunk>
class CausalModelOf : public CausalModel {
 public:
  const Config& config() const { return config_; }
  Cache cache(std::int64_t batch, std::int64_t capacity, at::ScalarType dtype, at::Device device) const override {
    return empty_cache(config_.num_hidden_layers, {batch, key_value_heads(), capacity, config_.head_size()},
                       at::TensorOptions(dtype).device(device));
  }
  std::vector<std::shared_ptr<Block>> blocks() const override { return {trunk_->layers.begin(), trunk_->layers.end()}; }

 protected:
  /// The names of trunk and head in a Hugging Face model. With a tied head there is no parameter of the head.
  CausalModelOf(const Config& config, const char* trunk, const char* head)
      : config_(config), trunk_(add_child<Trunk>(*this, trunk, config)) {
    if (!config.tie_word_embeddings) head_ = add_child<TokenHead>(*this, head, config.hidden_size, config.vocab_size);
    OuterPart& last = head_ ? static_cast<OuterPart&>(*head_) : *trunk_->embedding;
    last.is_last = true;
    last.with = {trunk_->final_norm};
  }
  at::Tensor hidden(const Rows& rows, Cache* cache) const override { return trunk_->forward(rows, cache); }
  const OuterPart* last_part() const override {
    return head_ ? static_cast<const OuterPart*>(head_.get()) : trunk_->embedding.get();
  }
  at::Tensor final_norm(const at::Tensor& x) const override { return trunk_->final_norm->forward(x); }
  Factors head(const at::Tensor& hidden) const override {
    return head_ ? head_->factors(hidden) : Factors{hidden, trunk_->embedding->weight};
  }

 private:
  std::int64_t key_value_heads() const {
    if constexpr (requires { config_.num_key_value_heads; }) return config_.num_key_value_heads;
    return config_.num_attention_heads;
  }

  const Config config_;
  std::shared_ptr<Trunk> trunk_;
  std::shared_ptr<TokenHead> head_;  ///< null when tied
};

}  // namespace worker
