#include "models/loss.h"

#include <ATen/core/Reduction.h>
#include <ATen/ops/cross_entropy_loss.h>

namespace worker {

at::Tensor token_cross_entropy(const at::Tensor& logits, const at::Tensor& targets) {
  return at::cross_entropy_loss(logits.flatten(0, 1).to(at::kFloat), targets.flatten(), {}, at::Reduction::Sum);
}

}  // namespace worker
