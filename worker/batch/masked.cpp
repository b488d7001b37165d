#include "worker/batch/masked.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/usage_error.h"
#include "data/order/masking.h"
#include "worker/batch/batch.h"
#include "worker/batch/document.h"

namespace worker {
namespace {

data::order::MaskingOptions masking_options(const data::format::Description& description,
                                            const MaskedOptions& options) {
  if (!options.mask && !description.mask) {
    throw base::UsageError(
        "the data's tokenizer (" + description.tokenizer_kind +
        ") has no mask token, which masked texts need; prepare the data with a tokenizer that has one, such as BERT's");
  }
  data::order::MaskingOptions out{.share = options.share, .special = options.special};
  out.mask = options.mask ? *options.mask : static_cast<std::uint32_t>(*description.mask);
  out.vocabulary = std::max<std::int64_t>(description.vocabulary, std::int64_t{out.mask} + 1);
  out.special.insert(out.special.end(), description.prefix.begin(), description.prefix.end());
  out.special.insert(out.special.end(), description.suffix.begin(), description.suffix.end());
  for (const auto& id : {description.pad, description.bos, description.eos, description.mask}) {
    if (id) out.special.push_back(static_cast<std::uint32_t>(*id));
  }
  return out;
}

data::order::Masking masking_of(const data::format::Description& description, const MaskedOptions& options) {
  try {
    return data::order::Masking(masking_options(description, options));
  } catch (const std::invalid_argument& error) {
    throw base::UsageError(error.what());
  }
}

class MaskedTexts : public BatchSource {
 public:
  MaskedTexts(std::shared_ptr<const data::format::Dataset> split, const MaskedOptions& options)
      : longest_(options.length),
        frame_(frame_of(split->description())),
        masking_(masking_of(split->description(), options)),
        pieces_(std::move(split), room_in(options.length, frame_, "data.sequence_length")) {}

  std::int64_t samples() const override { return pieces_.size(); }

  std::int32_t length(std::int64_t sample) const override {
    return static_cast<std::int32_t>(pieces_.at(sample).length + frame_.size());
  }

  Batch collate(std::span<const std::int64_t> samples, std::span<const std::uint64_t> draws) const override {
    TokenRows inputs, targets;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const data::order::Piece piece = pieces_.at(samples[i]);
      const auto row = framed(frame_, pieces_.ids(piece), piece.begin, piece.length);
      auto text = masking_.mask(std::vector<std::uint32_t>(row.begin(), row.end()), draws[i]);
      inputs.emplace_back(text.input.begin(), text.input.end());
      targets.push_back(std::move(text.targets));
    }
    const auto length = padded_length(inputs, longest_);
    const auto masked = places_of_targets(targets, length);
    Batch batch;
    batch.samples = static_cast<std::int64_t>(inputs.size());
    batch.tokens = count_tokens(inputs);
    batch.weight = static_cast<double>(masked.size());
    batch.tensors = {{"input_ids", padded(inputs, length, pieces_.description().pad.value_or(0))},
                     {"attention_mask", attention_mask(inputs, length)},
                     {"token_type_ids", at::zeros({batch.samples, length}, at::kLong)},
                     {"targets", padded(targets, length, data::order::kNoTarget)},
                     {"masked", to_tensor(masked)}};
    return batch;
  }

 private:
  static std::vector<std::int64_t> places_of_targets(const TokenRows& targets, std::int64_t length) {
    std::vector<std::int64_t> out;
    std::int64_t row = 0;
    for (const auto& of_row : targets) {
      for (std::size_t at = 0; at < of_row.size(); ++at) {
        if (of_row[at] != data::order::kNoTarget) out.push_back(row * length + static_cast<std::int64_t>(at));
      }
      ++row;
    }
    return out;
  }

  const std::int64_t longest_;
  const Frame frame_;
  const data::order::Masking masking_;
  const Pieces pieces_;
};

}  // namespace

std::shared_ptr<const BatchSource> masked_texts(std::shared_ptr<const data::format::Dataset> split,
                                                const MaskedOptions& options) {
  return std::make_shared<MaskedTexts>(std::move(split), options);
}

}  // namespace worker
