#include "worker/models/class_loss.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>
#include <c10/util/Exception.h>

#include <cstdint>
#include <optional>

#include "worker/models/head_loss.h"

namespace worker {

at::Tensor class_loss(const at::Tensor& logits, const at::Tensor& labels, const at::Tensor& class_weights) {
  TORCH_CHECK(logits.dim() == 2 && labels.dim() == 1 && labels.size(0) == logits.size(0), "class_loss: logits are ",
              logits.sizes(), " and labels ", labels.sizes(), "; want [batch, classes] and [batch]");
  const auto weights = class_weights.defined() ? std::optional<at::Tensor>(class_weights) : std::nullopt;
  return at::cross_entropy_loss(logits.to(at::kFloat), labels, weights, at::Reduction::Sum, data::order::kNoTarget);
}

double class_weight(const at::Tensor& labels, const at::Tensor& class_weights) {
  const at::Tensor dense = labels.contiguous();
  const auto* values = dense.const_data_ptr<std::int64_t>();
  const at::Tensor weights = class_weights.defined() ? class_weights.to(at::kDouble).contiguous() : class_weights;
  double sum = 0;
  for (std::int64_t i = 0; i < dense.numel(); ++i) {
    if (values[i] == data::order::kNoTarget) continue;
    if (!weights.defined()) {
      sum += 1;
      continue;
    }
    TORCH_CHECK(values[i] >= 0 && values[i] < weights.numel(), "class_weight: label ", values[i], " is none of the ",
                weights.numel(), " classes; want 0 to ", weights.numel() - 1);
    sum += weights.const_data_ptr<double>()[values[i]];
  }
  return sum;
}

}  // namespace worker
