#include "worker/models/layers/masks.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/arange.h>
#include <c10/util/Exception.h>

namespace worker {

Mask causal_mask() {
  return {.bias = {}, .causal = true};
}

Mask continued_mask(std::int64_t before, std::int64_t queries, at::Device device) {
  if (before == 0 && queries > 1) return causal_mask();
  if (queries == 1) return {};
  const auto options = at::TensorOptions(at::kLong).device(device);
  const at::Tensor keys = at::arange(before + queries, options);
  return {.bias = keys.unsqueeze(0) <= keys.narrow(0, before, queries).unsqueeze(1), .causal = false};
}

Mask segment_mask(const at::Tensor& segment_ids) {
  TORCH_CHECK(segment_ids.dim() == 2, "segment_mask: segment ids are ", segment_ids.sizes(),
              "; want [rows, positions]");
  const at::Tensor same = segment_ids.unsqueeze(2) == segment_ids.unsqueeze(1);
  return {.bias = same.tril().unsqueeze(1), .causal = false};
}

Mask padding_mask(const at::Tensor& attention_mask) {
  TORCH_CHECK(attention_mask.dim() == 2, "padding_mask: the mask is ", attention_mask.sizes(), "; want [batch, keys]");
  const at::Tensor counts = attention_mask > 0;
  const at::Tensor empty = counts.any(-1, /*keepdim=*/true).logical_not();
  return {.bias = counts.logical_or(empty).unsqueeze(1).unsqueeze(1), .causal = false};
}

}  // namespace worker
