#include "worker/generate/decode.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <span>
#include <stdexcept>
#include <string>
#include <utility>

#include "worker/batch/padding.h"

namespace worker {
namespace {

/// Eval mode for as long as the object lives.
class Evaluating {
 public:
  explicit Evaluating(torch::nn::Module& module) : module_(module), was_training_(module.is_training()) {
    module_.eval();
  }
  ~Evaluating() { module_.train(was_training_); }
  Evaluating(const Evaluating&) = delete;
  Evaluating& operator=(const Evaluating&) = delete;

 private:
  torch::nn::Module& module_;
  const bool was_training_;
};

class CausalReader : public RowReader {
 public:
  CausalReader(CausalModel& model, std::int64_t rows, std::int64_t capacity, Activations activations)
      : model_(model), activations_(activations), cache_(cache_of(rows, capacity)) {}

  at::Tensor next(const at::Tensor& ids) override { return model_.next(ids.to(activations_.device), cache_); }

  void idle() override {
    if (idle_.empty()) idle_ = cache_of(1, 1);
    for (auto& layer : idle_) layer.length = 0;
    model_.next(at::zeros({1, 1}, at::TensorOptions(at::kLong).device(activations_.device)), idle_);
  }

 private:
  Cache cache_of(std::int64_t rows, std::int64_t capacity) const {
    return model_.cache(rows, capacity, activations_.dtype, activations_.device);
  }

  CausalModel& model_;
  const Activations activations_;
  Cache cache_, idle_;
};

std::size_t shortest(const std::vector<TokenIds>& rows) {
  return std::ranges::min_element(rows, {}, &TokenIds::size)->size();
}

std::size_t longest(const std::vector<TokenIds>& rows) {
  return std::ranges::max_element(rows, {}, &TokenIds::size)->size();
}

void check_prompts(const std::vector<TokenIds>& prompts) {
  for (std::size_t row = 0; row < prompts.size(); ++row) {
    if (prompts[row].empty())
      throw std::invalid_argument("prompt " + std::to_string(row) + " has no token; give one at least");
  }
}

/// Rows of a batch in one place: what they have begun with, and what they have got.
class GrowingRows {
 public:
  GrowingRows(const std::vector<TokenIds>& begun, const Sampling& sampling, const OnToken& on_token)
      : begun_(begun), sampling_(sampling), on_token_(on_token), grown_(begun.size()), over_(begun.size()) {
    over_.assign(begun.size(), sampling.max_new_tokens == 0);
    length_ = begun.empty() ? 0 : shortest(begun);
  }

  bool all_over() const { return std::ranges::find(over_, false) == over_.end(); }

  /// The beginning that all rows have: [rows, shortest].
  at::Tensor first() const {
    const auto rows = static_cast<std::int64_t>(begun_.size()), columns = static_cast<std::int64_t>(length_);
    at::Tensor ids = at::zeros({rows, columns}, at::kLong);
    auto* out = ids.mutable_data_ptr<std::int64_t>();
    for (const auto& row : begun_) out = std::copy_n(row.begin(), length_, out);
    return ids;
  }

  /// Takes the logits of the newest column and returns the next column, [rows, 1]. Rows that are over get token 0.
  at::Tensor next(const at::Tensor& logits) {
    const at::Tensor on_host = logits.to(at::kCPU, at::kFloat).contiguous();
    const auto vocabulary = static_cast<std::size_t>(on_host.size(1));
    const auto* values = on_host.const_data_ptr<float>();
    at::Tensor ids = at::zeros({static_cast<std::int64_t>(begun_.size()), 1}, at::kLong);
    auto* column = ids.mutable_data_ptr<std::int64_t>();
    for (std::size_t row = 0; row < begun_.size(); ++row) {
      if (length_ < begun_[row].size()) {
        column[row] = begun_[row][length_];
      } else if (!over_[row]) {
        column[row] = grow(row, std::span(values + row * vocabulary, vocabulary));
      }
    }
    ++length_;
    return ids;
  }

  std::vector<TokenIds> take() { return std::move(grown_); }

 private:
  std::int64_t grow(std::size_t row, std::span<const float> logits) {
    auto& tokens = grown_[row];
    const std::int64_t token =
        pick(logits, sampling_, draw_for(sampling_.seed, sampling_.first_row + row, tokens.size()));
    tokens.push_back(token);
    const bool goes_on = !on_token_ || on_token_(row, token);
    over_[row] = !goes_on || static_cast<std::int64_t>(tokens.size()) == sampling_.max_new_tokens ||
                 std::ranges::find(sampling_.ends, token) != sampling_.ends.end();
    return token;
  }

  const std::vector<TokenIds>& begun_;
  const Sampling& sampling_;
  const OnToken& on_token_;
  std::vector<TokenIds> grown_;
  std::vector<bool> over_;
  std::size_t length_ = 0;  // of every row, beginning and new tokens together
};

}  // namespace

PaddedRows padded(const std::vector<TokenIds>& rows, std::int64_t padding) {
  const auto length = static_cast<std::int64_t>(longest(rows));
  return {padded(rows, length, padding), attention_mask(rows, length)};
}

std::vector<TokenIds> decode(RowReader& reader, const std::vector<TokenIds>& begun, const Sampling& sampling,
                             const AllDone& all_done, const OnToken& on_token) {
  GrowingRows rows(begun, sampling, on_token);
  at::Tensor ids = begun.empty() ? at::Tensor() : rows.first();
  while (true) {
    const bool mine = rows.all_over();
    if (all_done(mine)) return rows.take();
    if (mine) {
      reader.idle();
    } else {
      ids = rows.next(reader.next(ids));
    }
  }
}

std::vector<TokenIds> generate(CausalModel& model, const std::vector<TokenIds>& prompts, const Sampling& sampling,
                               Activations activations, const AllDone& all_done, const OnToken& on_token) {
  check(sampling);
  check_prompts(prompts);
  const at::NoGradGuard no_grad;
  const Evaluating evaluating(model);
  // The last new token is not read.
  const auto capacity = prompts.empty() ? 1
                                        : static_cast<std::int64_t>(longest(prompts)) +
                                              std::max<std::int64_t>(0, sampling.max_new_tokens - 1);
  CausalReader reader(model, std::max<std::int64_t>(1, static_cast<std::int64_t>(prompts.size())), capacity,
                      activations);
  return decode(reader, prompts, sampling, all_done, on_token);
}

std::vector<TokenIds> generate(EncoderDecoder& model, const std::vector<TokenIds>& prompts, const Sampling& sampling,
                               const AllDone& all_done, const OnToken& on_token) {
  check(sampling);
  check_prompts(prompts);
  const at::NoGradGuard no_grad;
  const Evaluating evaluating(model.module());
  // A rank without prompts encodes padding, because the others encode now.
  const auto [ids, mask] =
      padded(prompts.empty() ? std::vector<TokenIds>{{model.padding()}} : prompts, model.padding());
  const auto reader = model.encode(ids, mask, std::max<std::int64_t>(1, sampling.max_new_tokens));
  const std::vector<TokenIds> begun(prompts.size(), {model.first_token()});
  return decode(*reader, begun, sampling, all_done, on_token);
}

}  // namespace worker
