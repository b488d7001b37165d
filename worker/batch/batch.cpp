#include "worker/batch/batch.h"

#include <ATen/ops/empty.h>
#include <ATen/ops/full.h>
#include <ATen/ops/zeros.h>

#include <c10/util/Exception.h>

#include <algorithm>
#include <limits>
#include <stdexcept>

namespace worker {
namespace {

template <class Change>
Batch with_each(const Batch& batch, const Change& change) {
  Batch out;
  out.document_lengths = batch.document_lengths;
  out.samples = batch.samples;
  out.tokens = batch.tokens;
  out.weight = batch.weight;
  for (const auto& [name, tensor] : batch.tensors) out.tensors.emplace(name, change(tensor));
  return out;
}

}  // namespace

const at::Tensor& Batch::at(std::string_view name) const {
  const auto found = tensors.find(name);
  if (found != tensors.end()) return found->second;
  std::string names;
  for (const auto& [other, unused] : tensors) names += (names.empty() ? "" : ", ") + other;
  throw std::logic_error("a batch has no tensor \"" + std::string(name) + "\"; it has " +
                         (names.empty() ? "none" : names));
}

Batch Batch::to(at::Device device) const {
  return with_each(*this, [&](const at::Tensor& tensor) { return tensor.to(device, /*non_blocking=*/true); });
}

Batch Batch::pinned() const {
  return with_each(*this, [](const at::Tensor& tensor) { return tensor.pin_memory(); });
}

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

at::Tensor document_starts(const std::vector<std::int64_t>& lengths) {
  const at::Tensor starts = at::empty({static_cast<std::int64_t>(lengths.size()) + 1}, at::kInt);
  auto* place = starts.mutable_data_ptr<std::int32_t>();
  std::int64_t tokens = 0;
  *place = 0;
  for (const std::int64_t length : lengths) {
    tokens += length;
    TORCH_CHECK(tokens <= std::numeric_limits<std::int32_t>::max(), "a batch of ", tokens,
                " tokens; want less than 2^31");
    *++place = static_cast<std::int32_t>(tokens);
  }
  return starts;
}

std::int64_t count_tokens(const TokenRows& rows) {
  std::int64_t tokens = 0;
  for (const auto& row : rows) tokens += static_cast<std::int64_t>(row.size());
  return tokens;
}

}  // namespace worker
