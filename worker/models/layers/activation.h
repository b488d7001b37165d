#pragma once

#include <ATen/core/Tensor.h>

#include <string_view>

namespace worker {

/// The nonlinear functions of feed-forward layers.
enum class Activation {
  kGelu,      // x * Phi(x), by erf
  kGeluTanh,  // GELU's approximation by tanh, which Hugging Face calls gelu_new and gelu_pytorch_tanh
  kRelu,
  kSilu
};

/// The function that config.json calls so: gelu, gelu_new, gelu_pytorch_tanh, relu, silu or swish. Throws
/// std::invalid_argument that names the value and lists these names.
Activation activation_of(std::string_view name);

/// The function of each element of x.
at::Tensor activate(Activation function, const at::Tensor& x);

}  // namespace worker
