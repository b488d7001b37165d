#include "worker/batch/document.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/usage_error.h"

namespace worker {

Frame frame_of(const data::format::Description& description) {
  return {{description.prefix.begin(), description.prefix.end()},
          {description.suffix.begin(), description.suffix.end()}};
}

Frame document_frame_of(const data::format::Description& description) {
  Frame frame = frame_of(description);
  const bool ended = !frame.suffix.empty() && description.eos && frame.suffix.back() == *description.eos;
  if (description.eos && !ended) frame.suffix.push_back(*description.eos);
  return frame;
}

std::int64_t Document::operator[](std::int64_t place) const {
  const auto before = static_cast<std::int64_t>(frame_.prefix.size());
  if (place < before) return frame_.prefix[static_cast<std::size_t>(place)];
  if (place < before + ids_.size) return ids_[place - before];
  return frame_.suffix[static_cast<std::size_t>(place - before - ids_.size)];
}

void Document::copy(std::int64_t begin, std::int64_t count, std::int64_t* out) const {
  for (std::int64_t i = 0; i < count; ++i) out[i] = (*this)[begin + i];
}

std::vector<std::int64_t> framed(const Frame& frame, const data::format::Ids& ids, std::int64_t begin,
                                 std::int64_t count) {
  std::vector<std::int64_t> out = frame.prefix;
  out.reserve(static_cast<std::size_t>(frame.size() + count));
  for (auto at = begin; at < begin + count; ++at) out.push_back(ids[at]);
  out.insert(out.end(), frame.suffix.begin(), frame.suffix.end());
  return out;
}

std::int64_t room_in(std::int64_t length, const Frame& frame, const char* key) {
  if (length > frame.size()) return length - frame.size();
  throw base::UsageError(std::string(key) + " = " + std::to_string(length) + ": the tokenizer puts " +
                         std::to_string(frame.size()) + " special tokens around a text, so a row needs at least " +
                         std::to_string(frame.size() + 1) + " tokens; give a longer one");
}

Pieces::Pieces(std::shared_ptr<const data::format::Dataset> split, std::int64_t most)
    : split_(std::move(split)), most_(most) {
  for (std::int64_t record = 0; record < split_->records(); ++record) {
    first_.push_back(first_.back() + (split_->length(record) + most_ - 1) / most_);
  }
  if (size() == 0)
    throw base::UsageError("the data has no token in " + std::to_string(split_->records()) + " documents");
}

data::order::Piece Pieces::at(std::int64_t number) const {
  if (number < 0 || number >= size()) {
    throw std::out_of_range("there is no piece " + std::to_string(number) + " of " + std::to_string(size()));
  }
  // The last document that begins at or before it: documents without pieces begin where the next one does.
  const auto record = std::upper_bound(first_.begin(), first_.end(), number) - first_.begin() - 1;
  const auto begin = (number - first_[static_cast<std::size_t>(record)]) * most_;
  return {record, begin, std::min(most_, split_->length(record) - begin)};
}

}  // namespace worker
