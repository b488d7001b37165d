#pragma once
#include <torch/nn/module.h>

#include <string>
#include <utility>
#include <vector>

namespace fsdp {

/// Every name of every parameter, with a tied parameter under each of its names. A module's own parameters come before
/// those of its children, and children come in the order of registration.
std::vector<std::pair<std::string, at::Tensor>> parameter_names(const torch::nn::Module& module,
                                                                const std::string& prefix = "");

}  // namespace fsdp
