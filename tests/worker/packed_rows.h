#pragma once

#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

#include "worker/batch/batch.h"
#include "worker/models/layers/attention.h"

namespace worker::testing {

/// The documents of rows of `positions` tokens, given by their lengths in each row. The rest of a row is padding.
inline std::shared_ptr<const Documents> packed_rows(const std::vector<std::vector<std::int64_t>>& rows,
                                                    std::int64_t positions) {
  std::vector<std::int64_t> lengths;
  for (const auto& row : rows) {
    std::int64_t rest = positions;
    for (const auto length : row) {
      lengths.push_back(length);
      rest -= length;
    }
    if (rest > 0) lengths.push_back(rest);
  }
  const at::Tensor starts = document_starts(lengths);
  return std::make_shared<const Documents>(Documents{std::move(lengths), starts});
}

/// A dense mask of the keys that their tokens see: bool [rows, 1, positions, positions].
inline at::Tensor dense_mask(const Documents& documents, std::int64_t positions) {
  std::vector<std::int64_t> numbers;
  for (std::size_t i = 0; i < documents.lengths.size(); ++i)
    numbers.insert(numbers.end(), static_cast<std::size_t>(documents.lengths[i]), static_cast<std::int64_t>(i));
  const at::Tensor number = to_tensor(numbers).view({-1, positions});
  return (number.unsqueeze(2) == number.unsqueeze(1)).tril().unsqueeze(1);
}

}  // namespace worker::testing
