#pragma once

#include <ATen/core/Tensor.h>
#include <torch/nn/module.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "worker/models/causal_model.h"

namespace worker {

class T5ForConditionalGeneration;

/// How the next token is chosen, and when a text is over.
struct Sampling {
  double temperature = 0;  ///< 0: the most likely token; above: a token drawn from softmax(logits / temperature)
  double top_p = 1;        ///< above 0 and at most 1: draw among the most likely tokens of this much probability
  std::int64_t max_new_tokens = 128;  ///< of each text, its end included
  std::vector<std::int64_t> ends{};   ///< a text is over with one of these tokens
  std::uint64_t seed = 0;             ///< of the draws
  std::uint64_t first_row = 0;        ///< the number that the first row has for the draws
};

/// Throws std::invalid_argument naming what is out of its range.
void check(const Sampling& sampling);

/// The next token for the logits of a position, [vocabulary]. Of equally likely tokens the one with the smallest id is
/// the first. `draw` is 64 random bits, and equal bits give equal tokens on every machine, as far as its exp() rounds
/// alike.
///
/// top_p is nucleus sampling (Holtzman et al., arXiv 1904.09751), as in transformers: tokens are sorted by probability,
/// and a token stays if those before it have less than top_p together.
///
/// Throws std::invalid_argument when there are no logits or one is not a number.
std::int64_t pick(std::span<const float> logits, const Sampling& sampling, std::uint64_t draw);

/// The random bits for a new token: number `token` (from 0) of row `row`. They do not depend on other rows.
std::uint64_t draw_for(std::uint64_t seed, std::uint64_t row, std::uint64_t token);

using TokenIds = std::vector<std::int64_t>;

/// Asked before each call of the model: `mine` says that this rank has nothing left to do. True once that is so for all
/// ranks, and then alike on all of them.
///
/// [Note: generating on several ranks] The units of a sharded model are gathered by all ranks together. So all ranks
/// must call the root equally often and in the same order, though their texts end at different times. A rank whose
/// texts are over makes calls without a result until AllDone says that all are over. A process alone needs no answer of
/// others: done_alone.
using AllDone = std::function<bool(bool mine)>;
inline bool done_alone(bool mine) {
  return mine;
}

/// Hears each new token of each row, as soon as it is there. False ends the row, as a token of Sampling::ends does.
using OnToken = std::function<bool(std::size_t row, std::int64_t token)>;

/// The dtype and the device of a model's activations.
struct Activations {
  at::ScalarType dtype = at::kFloat;
  at::Device device = at::kCPU;
};

/// A decoder that reads a batch of rows from left to right.
class RowReader {
 public:
  virtual ~RowReader() = default;
  /// Reads more tokens, int64 [rows, n] on the CPU. Returns the logits of the last one, [rows, vocabulary].
  virtual at::Tensor next(const at::Tensor& ids) = 0;
  /// Makes the same call of the root without a result: see [Note: generating on several ranks].
  virtual void idle() = 0;
};

/// A model whose decoder continues what an encoder has read, such as T5.
class EncoderDecoder {
 public:
  virtual ~EncoderDecoder() = default;
  virtual torch::nn::Module& module() = 0;
  /// The token that every text of the decoder begins with.
  virtual std::int64_t first_token() const = 0;
  /// A token that fills rows behind their ends.
  virtual std::int64_t padding() const = 0;
  /// Encodes int64 [rows, positions], of which those count where `mask`, bool [rows, positions], is true. One call of
  /// the root. The decoder reads at most `capacity` tokens. The tensors are on the CPU.
  virtual std::unique_ptr<RowReader> encode(const at::Tensor& ids, const at::Tensor& mask, std::int64_t capacity) = 0;
};

/// T5 for generate(): its encoder reads the prompts, and its decoder begins with decoder_start_token_id. The model must
/// outlive the result.
std::unique_ptr<EncoderDecoder> answers_of(T5ForConditionalGeneration& model, Activations activations = {});

/// The tokens that follow each prompt: at most max_new_tokens, and the last one may be an end. Prompts may differ in
/// length. A row's draws depend on the seed and its number alone. Batches and ranks number their rows by
/// Sampling::first_row, so that a text gets the same draws however texts are grouped.
///
/// All rows go on together, one position a step: a row whose prompt is longer than the shortest one reads its prompt
/// where others read their new tokens, as in Meta's generation.py for Llama. So no row has padding before its tokens,
/// and a step costs one row of each. The cache has room for the longest prompt and max_new_tokens.
///
/// Gradients are off and the module is in eval mode meanwhile. Collective for a sharded model; see
/// [Note: generating on several ranks]. A rank may have no prompts. Throws std::invalid_argument for a prompt without a
/// token, and what check(Sampling) and pick() throw; c10::Error for more positions than the model takes.
std::vector<TokenIds> generate(CausalModel& model, const std::vector<TokenIds>& prompts, const Sampling& sampling,
                               Activations activations = {}, const AllDone& all_done = done_alone,
                               const OnToken& on_token = {});

/// Generates texts of a decoder in the same way, each of which answers the text of a prompt. All ranks encode at the
/// same time, and rows are padded to the longest prompt.
std::vector<TokenIds> generate(EncoderDecoder& model, const std::vector<TokenIds>& prompts, const Sampling& sampling,
                               const AllDone& all_done = done_alone, const OnToken& on_token = {});

/// Rows filled at their ends with `padding`, int64 [rows, longest], and where they have tokens, bool of that shape. On
/// the CPU.
struct PaddedRows {
  at::Tensor ids, mask;
};
PaddedRows padded(const std::vector<TokenIds>& rows, std::int64_t padding);

/// The part that both generate() functions do with a reader: `begun` are the tokens that the rows begin with.
std::vector<TokenIds> decode(RowReader& reader, const std::vector<TokenIds>& begun, const Sampling& sampling,
                             const AllDone& all_done, const OnToken& on_token);

}  // namespace worker
