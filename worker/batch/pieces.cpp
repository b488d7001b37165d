#include "worker/batch/pieces.h"

#include <algorithm>
#include <stdexcept>
#include <string>
#include <utility>

#include "base/usage_error.h"

namespace worker {

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
