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

UnitLayout::UnitLayout(std::vector<ParameterInfo> parameters, int world_size, int rank, std::int64_t alignment)
    : parameters_(std::move(parameters)), world_size_(world_size), rank_(rank), alignment_(alignment) {
  TORCH_CHECK(alignment > 0 && alignment % kAlignment == 0, "alignment of ", alignment,
              " elements: want a multiple of ", kAlignment);
  const auto align = [alignment](std::int64_t elements) { return (elements + alignment - 1) / alignment * alignment; };
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

Slice UnitLayout::own_state(const StateForm& form, const ParameterInfo& parameter) const {
  if (!form.is_of(parameter)) return {};
  const Slice slice = own(parameter);
  Slice values{slice.begin / form.block, form.values(slice.length), slice.shard_offset / form.block};
  if (form.replicated) values = {0, form.replicated(parameter), 0};
  if ((!form.has && !form.replicated) || values.length == 0) return values;
  values.shard_offset = 0;
  for (const ParameterInfo& before : parameters_) {
    if (before.index == parameter.index) break;
    if (form.is_of(before)) {
      values.shard_offset += form.replicated ? form.replicated(before) : form.values(own(before).length);
    }
  }
  return values;
}

std::int64_t UnitLayout::state_numel(const StateForm& form) const {
  if (!form.has && !form.replicated) return chunk_ / form.block;
  std::int64_t numel = 0;
  for (const ParameterInfo& parameter : parameters_) numel += own_state(form, parameter).length;
  return numel;
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
