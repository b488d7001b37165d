#include "worker/models/layers/linear.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/cat.h>
#include <c10/util/Exception.h>

#include "worker/models/layers/dropout.h"
#include "worker/models/layers/uninitialised.h"
#include "worker/models/ops.h"

namespace worker {

Linear::Linear(std::int64_t in, std::int64_t out, bool has_bias)
    : weight(register_parameter("weight", uninitialised({out, in}))) {
  if (has_bias) bias = register_parameter("bias", uninitialised({out}));
}

at::Tensor Linear::forward(const at::Tensor& x) const {
  const at::Tensor plain = worker::linear(x, weight, bias);
  if (!lora_a_) return plain;
  return plain + lora_b_->forward(adapted(x));
}

Factors Linear::factors(const at::Tensor& x) const {
  if (!lora_a_) return {x, weight};
  return {at::cat({x, adapted(x)}, -1), at::cat({weight, lora_b_->weight}, -1)};
}

at::Tensor Linear::adapted(const at::Tensor& x) const {
  return lora_scale_ * lora_a_->forward(drop_out(x, lora_dropout_, is_training()));
}

void Linear::add_adapter(std::int64_t rank, double scale, double dropout) {
  TORCH_CHECK(rank >= 1 && !lora_a_, "add_adapter: rank is ", rank, lora_a_ ? ", and there is an adapter already" : "",
              "; want a rank of at least 1, once a module");
  lora_a_ = register_module("lora_A", std::make_shared<Linear>(weight.size(1), rank));
  lora_b_ = register_module("lora_B", std::make_shared<Linear>(rank, weight.size(0)));
  lora_scale_ = scale;
  lora_dropout_ = dropout;
}

}  // namespace worker
