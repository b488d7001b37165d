#include "worker/batch/pairs.h"

#include <algorithm>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/usage_error.h"
#include "data/order/order.h"
#include "worker/batch/document.h"

namespace worker {
namespace {

class Pairs : public BatchSource {
 public:
  Pairs(std::shared_ptr<const data::format::Dataset> split, const PairOptions& options)
      : split_(std::move(split)),
        options_(options),
        input_frame_(frame_of(split_->description())),
        target_frame_(document_frame_of(split_->description())),
        of_input_(room_in(options.input_length, input_frame_, "data.sequence_length")),
        of_target_(room_in(options.target_length, target_frame_, "data.target_length")) {
    if (split_->records() == 0) throw base::UsageError("the data has no pair of texts; prepare more");
  }

  std::int64_t samples() const override { return split_->records(); }

  std::int32_t length(std::int64_t sample) const override {
    const auto tokens = std::min(split_->ids(sample, 0).size, of_input_) +
                        std::min(split_->ids(sample, 1).size, of_target_) + input_frame_.size() + target_frame_.size();
    return static_cast<std::int32_t>(tokens);
  }

  Batch collate(std::span<const std::int64_t> samples, std::span<const std::uint64_t>) const override {
    TokenRows inputs, targets;
    for (const auto sample : samples) {
      const auto input = split_->ids(sample, 0), target = split_->ids(sample, 1);
      inputs.push_back(framed(input_frame_, input, 0, std::min(input.size, of_input_)));
      targets.push_back(framed(target_frame_, target, 0, std::min(target.size, of_target_)));
    }
    return pair_batch(inputs, targets, split_->description().pad.value_or(0), options_);
  }

 private:
  const std::shared_ptr<const data::format::Dataset> split_;
  const PairOptions options_;
  const Frame input_frame_;
  const Frame target_frame_;                 // ends with the end-of-text token: a model learns where its answer ends
  const std::int64_t of_input_, of_target_;  // tokens without the frame
};

data::order::SpanOptions with_eos(data::order::SpanOptions spans, const data::format::Description& description) {
  spans.eos = std::nullopt;
  if (description.eos) spans.eos = static_cast<std::uint32_t>(*description.eos);
  return spans;
}

/// The most tokens of a piece whose input and target have at most these lengths.
std::int64_t tokens_of_piece(const data::order::SpanOptions& spans, const PairOptions& sizes) {
  try {
    auto tokens = text_for_input(sizes.input_length, spans);
    while (tokens > 2 && data::order::span_sizes(tokens, spans).target > sizes.target_length) --tokens;
    if (const auto least = data::order::span_sizes(tokens, spans).target; least > sizes.target_length) {
      throw base::UsageError("data.target_length = " + std::to_string(sizes.target_length) +
                             ": the target of a text with a span cut out has at least " + std::to_string(least) +
                             " tokens; give a longer one");
    }
    return tokens;
  } catch (const std::invalid_argument& error) {
    throw base::UsageError(error.what());
  }
}

class CorruptedSpans : public BatchSource {
 public:
  CorruptedSpans(std::shared_ptr<const data::format::Dataset> split, const data::order::SpanOptions& spans,
                 const PairOptions& sizes)
      : spans_(with_eos(spans, split->description())),
        sizes_(sizes),
        pieces_(std::move(split), tokens_of_piece(spans_, sizes)) {}

  std::int64_t samples() const override { return pieces_.size(); }

  std::int32_t length(std::int64_t sample) const override {
    return static_cast<std::int32_t>(pieces_.at(sample).length);
  }

  Batch collate(std::span<const std::int64_t> samples, std::span<const std::uint64_t> draws) const override {
    TokenRows inputs, targets;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const data::order::Piece piece = pieces_.at(samples[i]);
      const auto ids = pieces_.ids(piece);
      std::vector<std::uint32_t> tokens;
      for (auto at = piece.begin; at < piece.begin + piece.length; ++at) {
        tokens.push_back(static_cast<std::uint32_t>(ids[at]));
      }
      const auto text =
          data::order::cut_spans(tokens, data::order::random_noise(piece.length, spans_, draws[i]), spans_);
      inputs.emplace_back(text.input.begin(), text.input.end());
      targets.emplace_back(text.target.begin(), text.target.end());
    }
    return pair_batch(inputs, targets, pieces_.description().pad.value_or(0), sizes_);
  }

 private:
  const data::order::SpanOptions spans_;
  const PairOptions sizes_;
  const Pieces pieces_;
};

/// The tokens from `begin` on.
std::vector<std::int64_t> rest_of(const data::format::Ids& ids, std::int64_t begin) {
  return framed({}, ids, begin, ids.size - begin);
}

Prompt continuation(const data::format::Dataset& split, std::int64_t record, const Frame& frame, std::int64_t room,
                    const PromptOptions& options) {
  const auto ids = split.ids(record, 0);
  auto cut = ids.size / 2;
  if (options.cut) {
    const auto all = rest_of(ids, 0);
    cut = options.cut(record, std::vector<std::uint32_t>(all.begin(), all.end()));
    if (cut < 0 || cut > ids.size) {
      throw std::logic_error("a prompt of " + std::to_string(cut) + " tokens of a record of " +
                             std::to_string(ids.size));
    }
  }
  cut = std::min(cut, room);
  Prompt out{.record = record, .ids = framed(frame, ids, 0, cut), .rest = rest_of(ids, cut)};
  if (out.ids.empty()) out.ids.push_back(split.description().eos.value_or(0));
  return out;
}

Prompt question(const data::format::Dataset& split, std::int64_t record, const Frame& frame, std::int64_t room) {
  const auto input = split.ids(record, 0);
  return {.record = record,
          .ids = framed(frame, input, 0, std::min(input.size, room)),
          .rest = rest_of(split.ids(record, 1), 0)};
}

}  // namespace

std::shared_ptr<const BatchSource> pairs_of(std::shared_ptr<const data::format::Dataset> split,
                                            const PairOptions& options) {
  return std::make_shared<Pairs>(std::move(split), options);
}

Batch pair_batch(const TokenRows& inputs, const TokenRows& targets, std::int64_t pad, const PairOptions& options) {
  Batch batch;
  const auto length = padded_length(inputs, options.input_length);
  batch.tensors = {{"input_ids", padded(inputs, length, pad)},
                   {"attention_mask", attention_mask(inputs, length)},
                   {"targets", padded(targets, padded_length(targets, options.target_length), data::order::kNoTarget)}};
  batch.samples = static_cast<std::int64_t>(inputs.size());
  const auto counted = count_tokens(targets);
  batch.tokens = count_tokens(inputs) + counted;
  batch.weight = static_cast<double>(counted);
  return batch;
}

std::shared_ptr<const BatchSource> corrupted_spans(std::shared_ptr<const data::format::Dataset> split,
                                                   const data::order::SpanOptions& spans, const PairOptions& sizes) {
  return std::make_shared<CorruptedSpans>(std::move(split), spans, sizes);
}

std::vector<Prompt> prompts_of(const data::format::Dataset& split, int rank, int world_size,
                               const PromptOptions& options) {
  const auto kind = split.description().kind;
  const bool pairs = kind == data::format::Kind::kPairs;
  if (!pairs && kind != data::format::Kind::kTokens) {
    throw std::logic_error("prompts of data of kind " + std::string(data::format::name_of(kind)));
  }
  Frame frame = frame_of(split.description());
  if (!pairs) frame.suffix.clear();  // the text goes on
  const auto room = room_in(options.most, frame, "data.sequence_length");
  const auto records = std::min(options.samples, split.records());
  std::vector<Prompt> out;
  for (std::int64_t first = 0; first < records; first += world_size) {
    const bool counts = first + rank < records;
    const auto record = counts ? first + rank : 0;
    out.push_back(pairs ? question(split, record, frame, room) : continuation(split, record, frame, room, options));
    out.back().counts = counts;
  }
  return out;
}

}  // namespace worker
