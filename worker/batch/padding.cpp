#include "worker/batch/padding.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <algorithm>

#include "worker/batch/batch.h"

namespace worker {

std::int64_t padded_length(std::int64_t longest, std::int64_t most) {
  const auto steps = (std::max<std::int64_t>(longest, 1) + kPaddedTo - 1) / kPaddedTo;
  return std::min(steps * kPaddedTo, most);
}

std::int64_t padded_length(const TokenRows& rows, std::int64_t most) {
  std::size_t longest = 0;
  for (const auto& row : rows) longest = std::max(longest, row.size());
  return padded_length(static_cast<std::int64_t>(longest), most);
}

at::Tensor padded(const TokenRows& rows, std::int64_t length, std::int64_t pad) {
  at::Tensor out = at::full({static_cast<std::int64_t>(rows.size()), length}, pad, at::kLong);
  auto* place = out.mutable_data_ptr<std::int64_t>();
  for (const auto& row : rows) {
    std::copy(row.begin(), row.end(), place);
    place += length;
  }
  return out;
}

at::Tensor attention_mask(const TokenRows& rows, std::int64_t length) {
  at::Tensor out = at::zeros({static_cast<std::int64_t>(rows.size()), length}, at::kBool);
  auto* place = out.mutable_data_ptr<bool>();
  for (const auto& row : rows) {
    std::fill_n(place, row.size(), true);
    place += length;
  }
  return out;
}

at::Tensor to_tensor(const std::vector<std::int64_t>& values) {
  at::Tensor out = at::empty({static_cast<std::int64_t>(values.size())}, at::kLong);
  std::copy(values.begin(), values.end(), out.mutable_data_ptr<std::int64_t>());
  return out;
}

std::int64_t count_tokens(const TokenRows& rows) {
  std::int64_t tokens = 0;
  for (const auto& row : rows) tokens += static_cast<std::int64_t>(row.size());
  return tokens;
}

}  // namespace worker
