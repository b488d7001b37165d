#include "worker/models/layers/embedding.h"

#include "worker/models/layers/uninitialised.h"
#include "worker/models/ops.h"

namespace worker {

Embedding::Embedding(std::int64_t count, std::int64_t size)
    : weight(register_parameter("weight", uninitialised({count, size}))) {}

at::Tensor Embedding::forward(const at::Tensor& ids) const {
  return worker::embedding(weight, ids);
}

}  // namespace worker
