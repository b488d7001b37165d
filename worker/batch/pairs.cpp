#include "worker/batch/pairs.h"

#include <algorithm>
#include <utility>

#include "base/usage_error.h"
#include "data/order/target.h"
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

}  // namespace worker
