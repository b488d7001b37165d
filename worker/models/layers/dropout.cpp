#include "worker/models/layers/dropout.h"

#include <ATen/ops/dropout.h>

namespace worker {

at::Tensor drop_out(const at::Tensor& x, double p, bool training) {
  return training && p > 0 ? at::dropout(x, p, /*train=*/true) : x;
}

}  // namespace worker
