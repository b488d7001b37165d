#include "worker/batch/causal_rows.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>
#include <limits>
#include <stdexcept>
#include <utility>

#include "base/usage_error.h"
#include "data/order/order.h"

namespace worker {
namespace {

class StreamRows : public BatchSource {
 public:
  StreamRows(std::shared_ptr<const TokenStream> stream, std::int64_t length, std::int64_t first, std::int64_t rows)
      : stream_(std::move(stream)), length_(length), first_(first), rows_(rows) {}

  std::int64_t samples() const override { return rows_; }
  std::int32_t length(std::int64_t) const override { return static_cast<std::int32_t>(length_); }

  Batch collate(std::span<const std::int64_t> samples, std::span<const std::uint64_t>) const override {
    const auto count = static_cast<std::int64_t>(samples.size());
    const at::Tensor ids = at::empty({count, length_}, at::kLong), targets = at::empty({count, length_}, at::kLong);
    auto* input = ids.mutable_data_ptr<std::int64_t>();
    auto* target = targets.mutable_data_ptr<std::int64_t>();
    for (const auto sample : samples) {
      if (sample < 0 || sample >= rows_) {
        throw std::out_of_range("there is no row " + std::to_string(sample) + " of " + std::to_string(rows_));
      }
      const auto begin = (first_ + sample) * length_;
      stream_->copy(begin, length_, input);
      std::copy(input + 1, input + length_, target);
      stream_->copy(begin + length_, 1, target + length_ - 1);
      input += length_, target += length_;
    }
    Batch batch;
    batch.tensors = {{"input_ids", ids}, {"targets", targets}};
    batch.samples = count;
    batch.tokens = count * length_;
    batch.weight = static_cast<double>(batch.tokens);
    return batch;
  }

 private:
  const std::shared_ptr<const TokenStream> stream_;
  const std::int64_t length_, first_, rows_;
};

/// Rows of a stream, each with a target for its last token.
std::int64_t whole_rows(const TokenStream& stream, std::int64_t length) {
  return stream.size() > 0 ? (stream.size() - 1) / length : 0;
}

void check_length(std::int64_t length) {
  if (length < 1)
    throw base::UsageError("data.sequence_length = " + std::to_string(length) + ": a row has at least 1 token");
}

class PackedDocuments : public BatchSource {
 public:
  PackedDocuments(std::shared_ptr<const data::format::Dataset> split, std::int64_t length, std::uint64_t seed)
      : split_(std::move(split)), frame_(document_frame_of(split_->description())), longest_(length) {
    check_length(length);
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
    const at::Tensor positions = at::zeros({batch.samples, size}, at::kLong);
    std::int64_t counted = 0;
    for (std::size_t i = 0; i < samples.size(); ++i) {
      auto place = static_cast<std::int64_t>(i) * size;
      for (const data::order::Piece& piece : row(samples[i]).pieces) {
        const Document document(frame_, split_->ids(piece.record, 0));
        document.copy(piece.begin, piece.length, ids.mutable_data_ptr<std::int64_t>() + place);
        const auto with_target = std::min(piece.length, document.size() - piece.begin - 1);
        document.copy(piece.begin + 1, with_target, targets.mutable_data_ptr<std::int64_t>() + place);
        batch.document_lengths.push_back(piece.length);
        for (std::int64_t at = 0; at < piece.length; ++at) positions.mutable_data_ptr<std::int64_t>()[place + at] = at;
        counted += with_target;
        batch.tokens += piece.length;
        place += piece.length;
      }
      const std::int64_t padding = static_cast<std::int64_t>(i + 1) * size - place;
      if (padding > 0) batch.document_lengths.push_back(padding);
    }
    batch.weight = static_cast<double>(counted);
    batch.tensors = {{"input_ids", ids},
                     {"targets", targets},
                     {"position_ids", positions},
                     {"document_starts", document_starts(batch.document_lengths)}};
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

TokenStream::TokenStream(std::shared_ptr<const data::format::Dataset> split)
    : split_(std::move(split)), frame_(document_frame_of(split_->description())) {
  for (std::int64_t record = 0; record < split_->records(); ++record)
    starts_.push_back(starts_.back() + frame_.size() + split_->length(record));
}

void TokenStream::copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const {
  // The last record that begins at or before the first token.
  auto record = std::upper_bound(starts_.begin(), starts_.end(), begin) - starts_.begin() - 1;
  while (count > 0) {
    const Document document(frame_, split_->ids(record, 0));
    const auto inside = begin - starts_[static_cast<std::size_t>(record)];
    const auto part = std::min(count, document.size() - inside);
    document.copy(inside, part, out);
    begin += part, out += part, count -= part, ++record;
  }
}

std::shared_ptr<const BatchSource> all_rows_of(std::shared_ptr<const TokenStream> stream, std::int64_t length,
                                               const std::string& what) {
  check_length(length);
  const auto rows = whole_rows(*stream, length);
  if (rows == 0) {
    throw base::UsageError("data.sequence_length = " + std::to_string(length) + ": " + what + " has only " +
                           std::to_string(stream->size()) +
                           " tokens, too few for one row; prepare more text, or give a shorter sequence");
  }
  return std::make_shared<StreamRows>(std::move(stream), length, 0, rows);
}

SplitRows split_rows(const std::shared_ptr<const TokenStream>& stream, std::int64_t length,
                     double validation_fraction) {
  check_length(length);
  const auto rows = whole_rows(*stream, length);
  std::int64_t validation = 0;
  if (validation_fraction > 0) {
    validation = std::max<std::int64_t>(1, static_cast<std::int64_t>(static_cast<double>(rows) * validation_fraction));
  }
  const auto train = rows - validation;
  if (train < 1) {
    throw base::UsageError(
        "data.sequence_length = " + std::to_string(length) + ": the text has only " + std::to_string(stream->size()) +
        " tokens, too few for one training sample beside validation; give more text or a shorter sequence");
  }
  SplitRows out{std::make_shared<StreamRows>(stream, length, 0, train), nullptr};
  if (validation > 0) out.validation = std::make_shared<StreamRows>(stream, length, train, validation);
  return out;
}

std::shared_ptr<const BatchSource> packed_documents(std::shared_ptr<const data::format::Dataset> split,
                                                    std::int64_t length, std::uint64_t seed) {
  return std::make_shared<PackedDocuments>(std::move(split), length, seed);
}

}  // namespace worker
