#include "worker/batch/causal.h"

#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "base/usage_error.h"
#include "data/order/packing.h"
#include "data/order/target.h"
#include "worker/batch/document.h"
#include "worker/batch/padding.h"

namespace worker {
namespace {

class PackedDocuments : public BatchSource {
 public:
  PackedDocuments(std::shared_ptr<const data::format::Dataset> split, std::int64_t length, std::uint64_t seed)
      : split_(std::move(split)), frame_(document_frame_of(split_->description())), longest_(length) {
    if (length < 1 || length > kLongestPackedRow) {
      throw base::UsageError("data.sequence_length = " + std::to_string(length) +
                             ": rows of packed documents have 1 to " + std::to_string(kLongestPackedRow) +
                             " tokens, because the mask of a row grows with the square of its length; give a shorter "
                             "sequence, or data.packing = \"chunks\"");
    }
    std::vector<std::int32_t> lengths;
    lengths.reserve(static_cast<std::size_t>(split_->records()));
    for (std::int64_t record = 0; record < split_->records(); ++record) {
      lengths.push_back(document_length(record));
    }
    rows_ = data::order::pack(seed, lengths, length);
    if (rows_.empty())
      throw base::UsageError("the data has no token in " + std::to_string(split_->records()) + " documents");
  }

  std::int64_t samples() const override { return static_cast<std::int64_t>(rows_.size()); }

  std::int32_t length(std::int64_t sample) const override {
    std::int64_t tokens = 0;
    for (const data::order::Piece& piece : row(sample).pieces) tokens += piece.length;
    return static_cast<std::int32_t>(tokens);
  }

  Batch collate(std::span<const std::int64_t> samples, std::span<const std::uint64_t>) const override {
    std::int64_t longest = 0;
    for (const auto sample : samples) longest = std::max<std::int64_t>(longest, length(sample));
    Batch batch;
    batch.samples = static_cast<std::int64_t>(samples.size());
    const auto size = padded_length(longest, longest_);
    const at::Tensor ids = at::full({batch.samples, size}, split_->description().pad.value_or(0), at::kLong);
    const at::Tensor targets = at::full({batch.samples, size}, data::order::kNoTarget, at::kLong);
    const at::Tensor segments = at::zeros({batch.samples, size}, at::kInt);
    const at::Tensor positions = at::zeros({batch.samples, size}, at::kLong);
    std::int64_t counted = 0;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      auto place = static_cast<std::int64_t>(i) * size;
      std::int32_t segment = 0;
      for (const data::order::Piece& piece : row(samples[i]).pieces) {
        const Document document(frame_, split_->ids(piece.record, 0));
        document.copy(piece.begin, piece.length, ids.mutable_data_ptr<std::int64_t>() + place);
        const auto with_target = std::min(piece.length, document.size() - piece.begin - 1);
        document.copy(piece.begin + 1, with_target, targets.mutable_data_ptr<std::int64_t>() + place);
        std::fill_n(segments.mutable_data_ptr<std::int32_t>() + place, piece.length, ++segment);
        for (std::int64_t at = 0; at < piece.length; ++at) positions.mutable_data_ptr<std::int64_t>()[place + at] = at;
        counted += with_target;
        batch.tokens += piece.length;
        place += piece.length;
      }
    }
    batch.weight = static_cast<double>(counted);
    batch.tensors = {{"input_ids", ids}, {"targets", targets}, {"segment_ids", segments}, {"position_ids", positions}};
    return batch;
  }

 private:
  std::int32_t document_length(std::int64_t record) const {
    const auto length = frame_.size() + split_->length(record);
    if (length <= std::numeric_limits<std::int32_t>::max()) return static_cast<std::int32_t>(length);
    throw base::UsageError("document " + std::to_string(record) + " of the data has " + std::to_string(length) +
                           " tokens with its special tokens; a document has less than 2^31; prepare it in parts");
  }

  const data::order::PackedRow& row(std::int64_t sample) const { return rows_.at(static_cast<std::size_t>(sample)); }

  const std::shared_ptr<const data::format::Dataset> split_;
  const Frame frame_;
  const std::int64_t longest_;
  std::vector<data::order::PackedRow> rows_;
};

}  // namespace

std::shared_ptr<const BatchSource> packed_documents(std::shared_ptr<const data::format::Dataset> split,
                                                    std::int64_t length, std::uint64_t seed) {
  return std::make_shared<PackedDocuments>(std::move(split), length, seed);
}

}  // namespace worker
