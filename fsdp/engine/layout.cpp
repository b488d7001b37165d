#include "fsdp/engine/layout.h"

#include <algorithm>
#include <cmath>

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

UnitLayout::UnitLayout(std::vector<ParameterInfo> parameters, int world_size, int rank)
    : parameters_(std::move(parameters)), world_size_(world_size), rank_(rank) {
  const auto align = [](std::int64_t elements) { return (elements + kAlignment - 1) / kAlignment * kAlignment; };
  std::int64_t end = 0;
  for (ParameterInfo& parameter : parameters_) {
    parameter.offset = end;
    end = align(end + parameter.numel);
    numel_ += parameter.numel;
  }
  // Chunks start aligned too. So a rank's slice is aligned wherever the parameter starts inside the rank's chunk.
  chunk_ = align((end + world_size - 1) / world_size);
}

Slice UnitLayout::slice(const ParameterInfo& parameter, int rank) const {
  const std::int64_t first = std::max(parameter.offset, rank * chunk_);
  const std::int64_t last = std::min(parameter.offset + parameter.numel, (rank + 1) * chunk_);
  if (first >= last) return {};
  return {first - parameter.offset, last - first, first - rank * chunk_};
}

DivideFactors divide_factors(at::ScalarType reduce_dtype, int ranks, std::optional<double> total) {
  const double factor = total.value_or(ranks);
  DivideFactors out{1, factor};
  if (reduce_dtype != at::kHalf) return out;
  while (std::fmod(factor, out.before) == 0 && factor / out.before > out.before) out.before *= 2;
  out.after = factor / out.before;
  return out;
}

}  // namespace fsdp
