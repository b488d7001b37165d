#include "worker/batch/encoder_texts.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/usage_error.h"
#include "data/order/masking.h"
#include "worker/batch/document.h"

namespace worker {
namespace {

/// A batch of these rows as an encoder reads them, padded to `length`.
Batch batch_of(const TokenRows& rows, std::int64_t length, const data::format::Description& description) {
  Batch batch;
  batch.samples = static_cast<std::int64_t>(rows.size());
  batch.tokens = count_tokens(rows);
  batch.tensors = {{"input_ids", padded(rows, length, description.pad.value_or(0))},
                   {"attention_mask", attention_mask(rows, length)},
                   {"token_type_ids", at::zeros({batch.samples, length}, at::kLong)}};
  return batch;
}

void check_weights(const std::vector<double>& weights, const std::vector<std::string>& labels) {
  if (weights.empty()) return;
  if (weights.size() != labels.size()) {
    throw base::UsageError("train.class_weights: " + std::to_string(weights.size()) + " weights for " +
                           std::to_string(labels.size()) + " labels; give one for each label of the data, or none");
  }
  for (std::size_t i = 0; i < weights.size(); ++i) {
    if (std::isfinite(weights[i]) && weights[i] >= 0) continue;
    throw base::UsageError("train.class_weights: the weight of the label \"" + labels[i] + "\" is " +
                           std::to_string(weights[i]) + "; a weight is a number from 0 on");
  }
}

class LabelledTexts : public BatchSource {
 public:
  LabelledTexts(std::shared_ptr<const data::format::Dataset> split, const LabelledOptions& options)
      : split_(std::move(split)),
        options_(options),
        frame_(frame_of(split_->description())),
        room_(room_in(options.length, frame_, "data.sequence_length")) {
    check_weights(options_.class_weights, split_->description().labels);
    if (split_->records() == 0) throw base::UsageError("the data has no labelled text; prepare more");
  }

  std::int64_t samples() const override { return split_->records(); }

  std::int32_t length(std::int64_t sample) const override {
    return static_cast<std::int32_t>(std::min(split_->length(sample), room_) + frame_.size());
  }

  Batch collate(std::span<const std::int64_t> samples, std::span<const std::uint64_t>) const override {
    TokenRows rows;
    std::vector<std::int64_t> labels;
    double weight = 0;
    for (const auto sample : samples) {
      const auto ids = split_->ids(sample, 0);
      rows.push_back(framed(frame_, ids, 0, std::min(ids.size, room_)));
      const auto label = split_->label(sample);
      labels.push_back(options_.row_of.empty() ? label : options_.row_of[static_cast<std::size_t>(label)]);
      weight += options_.class_weights.empty() ? 1 : options_.class_weights[static_cast<std::size_t>(label)];
    }
    Batch batch = batch_of(rows, padded_length(rows, options_.length), split_->description());
    batch.weight = weight;
    batch.tensors.emplace("labels", to_tensor(labels));
    return batch;
  }

 private:
  const std::shared_ptr<const data::format::Dataset> split_;
  const LabelledOptions options_;
  const Frame frame_;
  const std::int64_t room_;  // tokens of a text without its frame
};

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
    Batch batch = batch_of(inputs, length, pieces_.description());
    batch.weight = static_cast<double>(masked.size());
    batch.tensors.emplace("targets", padded(targets, length, data::order::kNoTarget));
    batch.tensors.emplace("masked", to_tensor(masked));
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

std::shared_ptr<const BatchSource> labelled_texts(std::shared_ptr<const data::format::Dataset> split,
                                                  const LabelledOptions& options) {
  return std::make_shared<LabelledTexts>(std::move(split), options);
}

std::vector<double> balanced_weights(const data::format::Dataset& split) {
  std::vector<double> weights(split.description().labels.size());
  for (std::int64_t record = 0; record < split.records(); ++record) {
    weights.at(static_cast<std::size_t>(split.label(record))) += 1;
  }
  const auto labels = static_cast<double>(weights.size()), records = static_cast<double>(split.records());
  for (double& weight : weights) weight = weight > 0 ? records / (labels * weight) : 0;
  return weights;
}

std::shared_ptr<const BatchSource> masked_texts(std::shared_ptr<const data::format::Dataset> split,
                                                const MaskedOptions& options) {
  return std::make_shared<MaskedTexts>(std::move(split), options);
}

}  // namespace worker
