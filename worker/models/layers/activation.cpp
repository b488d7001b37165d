#include "worker/models/layers/activation.h"

#include <ATen/ops/gelu.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/silu.h>
#include <c10/util/Exception.h>

#include <stdexcept>
#include <string>

namespace worker {

Activation activation_of(std::string_view name) {
  if (name == "gelu") return Activation::kGelu;
  if (name == "gelu_new" || name == "gelu_pytorch_tanh") return Activation::kGeluTanh;
  if (name == "relu") return Activation::kRelu;
  if (name == "silu" || name == "swish") return Activation::kSilu;
  throw std::invalid_argument("the activation \"" + std::string(name) +
                              "\" does not exist here; want gelu, gelu_new, gelu_pytorch_tanh, relu, silu or swish");
}

at::Tensor activate(Activation function, const at::Tensor& x) {
  switch (function) {
    case Activation::kGelu:
      return at::gelu(x);
    case Activation::kGeluTanh:
      return at::gelu(x, "tanh");
    case Activation::kRelu:
      return at::relu(x);
    case Activation::kSilu:
      return at::silu(x);
  }
  TORCH_CHECK(false, "activate: there is no activation ", static_cast<int>(function));
}

}  // namespace worker
