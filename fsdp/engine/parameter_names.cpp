#include "fsdp/engine/parameter_names.h"

namespace fsdp {

std::vector<std::pair<std::string, at::Tensor>> parameter_names(const torch::nn::Module& module,
                                                                const std::string& prefix) {
  std::vector<std::pair<std::string, at::Tensor>> names;
  for (const auto& item : module.named_parameters(/*recurse=*/false))
    if (item.value().defined()) names.emplace_back(prefix + item.key(), item.value());
  for (const auto& child : module.named_children())
    for (auto& name : parameter_names(*child.value(), prefix + child.key() + ".")) names.push_back(std::move(name));
  return names;
}

}  // namespace fsdp
