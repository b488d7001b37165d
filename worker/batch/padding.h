#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace worker {

using TokenRows = std::vector<std::vector<std::int64_t>>;

/// The length that rows are padded to: that of the longest row, at least 1, rounded up to kPaddedTo, but at most
/// `most`, which no row exceeds.
std::int64_t padded_length(std::int64_t longest, std::int64_t most);
std::int64_t padded_length(const TokenRows& rows, std::int64_t most);

/// The rows with `pad` after their tokens: int64 [rows, length].
at::Tensor padded(const TokenRows& rows, std::int64_t length, std::int64_t pad);

/// True for the tokens of the rows, false for what padded() adds: bool [rows, length].
at::Tensor attention_mask(const TokenRows& rows, std::int64_t length);

/// A list as int64 [n].
at::Tensor to_tensor(const std::vector<std::int64_t>& values);

std::int64_t count_tokens(const TokenRows& rows);

}  // namespace worker
