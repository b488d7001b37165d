#include "worker/generate/decode.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "data/order/random.h"
#include "worker/batch/batch.h"
#include "worker/models/t5/t5_model.h"

namespace worker {
namespace {

struct Candidate {
  std::int64_t token = 0;
  double weight = 0;  // its probability times the sum of all weights
};

std::int64_t most_likely(std::span<const float> logits) {
  return std::max_element(logits.begin(), logits.end()) - logits.begin();
}

/// exp((logit - greatest) / temperature) of each token, and the sum of all.
std::vector<Candidate> weighed(std::span<const float> logits, double temperature, double& sum) {
  const double greatest = *std::max_element(logits.begin(), logits.end());
  std::vector<Candidate> all(logits.size());
  sum = 0;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    all[i] = {static_cast<std::int64_t>(i), std::exp((static_cast<double>(logits[i]) - greatest) / temperature)};
    sum += all[i].weight;
  }
  return all;
}

/// The tokens that top_p leaves, the most likely one first. `sum` is that of all weights.
std::vector<Candidate> nucleus(std::vector<Candidate> all, double top_p, double sum) {
  // Tokens below this weight have less than 1 - top_p together, so none of them stays. Few are left to sort.
  const double least = (1 - top_p) * sum / static_cast<double>(all.size()) / 2;
  std::erase_if(all, [&](const Candidate& one) { return one.weight < least; });
  std::ranges::sort(all, [](const Candidate& a, const Candidate& b) {
    return a.weight != b.weight ? a.weight > b.weight : a.token < b.token;
  });
  double before = 0;
  std::size_t kept = 0;
  while (kept < all.size() && (kept == 0 || before < top_p * sum)) before += all[kept++].weight;
  all.resize(kept);
  return all;
}

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

class T5Reader : public RowReader {
 public:
  T5Reader(const T5ForConditionalGeneration& model, at::Tensor encoded, at::Tensor mask, std::int64_t capacity,
           Activations activations)
      : model_(model),
        activations_(activations),
        encoded_(std::move(encoded)),
        mask_(std::move(mask)),
        cache_(model.cache(encoded_.size(0), capacity, activations.dtype, activations.device)) {}

  at::Tensor next(const at::Tensor& ids) override {
    return model_.next(ids.to(activations_.device), encoded_, mask_, cache_);
  }

  void idle() override {
    auto cache = model_.cache(1, 1, activations_.dtype, activations_.device);
    const at::Tensor first = at::full({1, 1}, model_.config().decoder_start_token_id,
                                      at::TensorOptions(at::kLong).device(activations_.device));
    model_.next(first, encoded_.narrow(0, 0, 1), mask_.narrow(0, 0, 1), cache);
  }

 private:
  const T5ForConditionalGeneration& model_;
  const Activations activations_;
  const at::Tensor encoded_, mask_;
  T5Cache cache_;
};

class T5Answers : public EncoderDecoder {
 public:
  T5Answers(T5ForConditionalGeneration& model, Activations activations) : model_(model), activations_(activations) {}

  torch::nn::Module& module() override { return model_; }
  std::int64_t first_token() const override { return model_.config().decoder_start_token_id; }
  std::int64_t padding() const override { return model_.config().pad_token_id; }

  std::unique_ptr<RowReader> encode(const at::Tensor& ids, const at::Tensor& mask, std::int64_t capacity) override {
    const at::Tensor counts = mask.to(activations_.device);
    return std::make_unique<T5Reader>(model_, model_.encode(ids.to(activations_.device), counts), counts, capacity,
                                      activations_);
  }

 private:
  T5ForConditionalGeneration& model_;
  const Activations activations_;
};

}  // namespace

void check(const Sampling& sampling) {
  const auto refuse = [](const std::string& what) { throw std::invalid_argument(what); };
  if (!(sampling.temperature >= 0) || !std::isfinite(sampling.temperature))
    refuse("a temperature of " + std::to_string(sampling.temperature) + ": want 0 or a number above it");
  if (!(sampling.top_p > 0 && sampling.top_p <= 1))
    refuse("a top_p of " + std::to_string(sampling.top_p) + ": want a number above 0 and at most 1");
  if (sampling.max_new_tokens < 0)
    refuse(std::to_string(sampling.max_new_tokens) + " new tokens: want a whole number from 0 on");
}

std::int64_t pick(std::span<const float> logits, const Sampling& sampling, std::uint64_t draw) {
  if (logits.empty()) throw std::invalid_argument("pick: there are no logits");
  if (std::ranges::any_of(logits, [](float logit) { return std::isnan(logit) || logit == INFINITY; })) {
    throw std::invalid_argument(
        "the model's logits are not numbers: its weights are damaged, or too large for this precision; try fp32");
  }
  if (sampling.temperature == 0) return most_likely(logits);
  double sum = 0;
  auto candidates = weighed(logits, sampling.temperature, sum);
  if (sampling.top_p < 1) {
    candidates = nucleus(std::move(candidates), sampling.top_p, sum);
    sum = 0;
    for (const auto& one : candidates) sum += one.weight;
  }
  double left = static_cast<double>(draw >> 11) * 0x1p-53 * sum;
  std::int64_t last = candidates.front().token;
  for (const auto& one : candidates) {
    if (one.weight == 0) continue;
    if (left < one.weight) return one.token;
    left -= one.weight;
    last = one.token;
  }
  return last;  // rounding has left a rest behind the last token
}

std::uint64_t draw_for(std::uint64_t seed, std::uint64_t row, std::uint64_t token) {
  return data::order::splitmix(data::order::splitmix(data::order::splitmix(seed) + row) +
                               (token + 1) * data::order::kSplitmixStride);
}

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

std::unique_ptr<EncoderDecoder> answers_of(T5ForConditionalGeneration& model, Activations activations) {
  return std::make_unique<T5Answers>(model, activations);
}

}  // namespace worker
