#include "worker/batch/spans.h"

#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/usage_error.h"
#include "worker/batch/pieces.h"

namespace worker {
namespace {

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

}  // namespace

std::shared_ptr<const BatchSource> corrupted_spans(std::shared_ptr<const data::format::Dataset> split,
                                                   const data::order::SpanOptions& spans, const PairOptions& sizes) {
  return std::make_shared<CorruptedSpans>(std::move(split), spans, sizes);
}

}  // namespace worker
