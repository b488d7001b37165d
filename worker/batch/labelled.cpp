#include "worker/batch/labelled.h"

#include <ATen/ops/zeros.h>

#include <algorithm>
#include <cmath>
#include <string>
#include <utility>

#include "base/usage_error.h"
#include "worker/batch/batch.h"
#include "worker/batch/document.h"

namespace worker {
namespace {

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
    Batch batch;
    for (const auto sample : samples) {
      const auto ids = split_->ids(sample, 0);
      rows.push_back(framed(frame_, ids, 0, std::min(ids.size, room_)));
      const auto label = split_->label(sample);
      labels.push_back(options_.row_of.empty() ? label : options_.row_of[static_cast<std::size_t>(label)]);
      batch.weight += options_.class_weights.empty() ? 1 : options_.class_weights[static_cast<std::size_t>(label)];
    }
    const auto length = padded_length(rows, options_.length);
    batch.samples = static_cast<std::int64_t>(rows.size());
    batch.tokens = count_tokens(rows);
    batch.tensors = {{"input_ids", padded(rows, length, split_->description().pad.value_or(0))},
                     {"attention_mask", attention_mask(rows, length)},
                     {"token_type_ids", at::zeros({batch.samples, length}, at::kLong)},
                     {"labels", to_tensor(labels)}};
    return batch;
  }

 private:
  const std::shared_ptr<const data::format::Dataset> split_;
  const LabelledOptions options_;
  const Frame frame_;
  const std::int64_t room_;  // tokens of a text without its frame
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

}  // namespace worker
