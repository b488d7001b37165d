#pragma once
#include <ATen/core/Tensor.h>

#include <cstdint>
#include <vector>

namespace fsdp {

/// All-reduces of at most so many bytes are summed by every rank, which sends all of them. Larger ones take two rounds.
inline constexpr std::int64_t kSentWhole = 16 << 10;

/// Writes the sum of `parts` to `output`, which may be one of them. All have one shape and dtype. The order of the
/// additions is a tree that depends on the number of parts alone: ((0 + 1) + (2 + 3)). So the bits of a sum over all
/// ranks are those of a sum over halves, quarters and so on of them, summed again. Parts with `may_change` are
/// overwritten with sums of a few of them.
void tree_sum(const std::vector<at::Tensor>& parts, const std::vector<bool>& may_change, const at::Tensor& output);

}  // namespace fsdp
