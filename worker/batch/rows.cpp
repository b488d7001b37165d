#include "worker/batch/rows.h"

#include <ATen/ops/empty.h>

#include <algorithm>
#include <stdexcept>
#include <utility>
#include <vector>

#include "base/usage_error.h"
#include "worker/batch/document.h"

namespace worker {
namespace {

class RecordStream : public TokenStream {
 public:
  explicit RecordStream(std::shared_ptr<const data::format::Dataset> split)
      : split_(std::move(split)), frame_(document_frame_of(split_->description())) {
    for (std::int64_t record = 0; record < split_->records(); ++record) {
      starts_.push_back(starts_.back() + frame_.size() + split_->length(record));
    }
  }

  std::int64_t size() const override { return starts_.back(); }

  void copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const override {
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

 private:
  const std::shared_ptr<const data::format::Dataset> split_;
  const Frame frame_;
  std::vector<std::int64_t> starts_{0};  // in the stream, by record; the last: the stream's size
};

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

}  // namespace

std::shared_ptr<const TokenStream> stream_of(std::shared_ptr<const data::format::Dataset> split) {
  return std::make_shared<RecordStream>(std::move(split));
}

std::shared_ptr<const BatchSource> rows_of(std::shared_ptr<const TokenStream> stream, std::int64_t length,
                                           std::int64_t first, std::int64_t rows) {
  return std::make_shared<StreamRows>(std::move(stream), length, first, rows);
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
  return rows_of(std::move(stream), length, 0, rows);
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
  SplitRows out{rows_of(stream, length, 0, train), nullptr};
  if (validation > 0) out.validation = rows_of(stream, length, train, validation);
  return out;
}

}  // namespace worker
