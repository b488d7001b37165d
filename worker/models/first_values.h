#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <string>

namespace worker {

/// Draws first values for elements of the parameter `name`, as transformers does for most families: ones for the
/// weights of norms ("input_layernorm.weight", "LayerNorm.weight"), zeros for biases, and Normal(0, `deviation`) for
/// the rest.
void draw_normal(const std::string& name, const at::Tensor& values, double deviation, at::Generator& random);

}  // namespace worker
