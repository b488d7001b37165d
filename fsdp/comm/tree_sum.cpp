#include "fsdp/comm/tree_sum.h"

#include <ATen/ops/add.h>
#include <ATen/ops/empty_like.h>

namespace fsdp {
namespace {

struct Summand {
  at::Tensor tensor;
  bool may_change = false;
};

/// The sum of parts [begin, end), in a part that may change.
Summand sum_of(const std::vector<at::Tensor>& parts, const std::vector<bool>& may_change, std::size_t begin,
               std::size_t end, const at::Tensor* output) {
  if (end - begin == 1) return {parts[begin], may_change[begin]};
  const std::size_t middle = begin + (end - begin + 1) / 2;
  const Summand left = sum_of(parts, may_change, begin, middle, nullptr);
  const Summand right = sum_of(parts, may_change, middle, end, nullptr);
  at::Tensor into = output != nullptr  ? *output
                    : left.may_change  ? left.tensor
                    : right.may_change ? right.tensor
                                       : at::empty_like(left.tensor);
  at::add_out(into, left.tensor, right.tensor);
  return {into, true};
}

}  // namespace

void tree_sum(const std::vector<at::Tensor>& parts, const std::vector<bool>& may_change, const at::Tensor& output) {
  const Summand sum = sum_of(parts, may_change, 0, parts.size(), &output);
  if (!sum.tensor.is_same(output)) at::Tensor(output).copy_(sum.tensor);
}

}  // namespace fsdp
