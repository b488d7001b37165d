#include "fsdp/engine/layout.h"

#include <algorithm>

namespace fsdp {
namespace {

std::int64_t round_up(std::int64_t value, std::int64_t multiple) {
  return (value + multiple - 1) / multiple * multiple;
}

}  // namespace

UnitLayout::UnitLayout(std::vector<ParameterInfo> parameters, int world_size, int rank)
    : parameters_(std::move(parameters)), world_size_(world_size), rank_(rank) {
  std::int64_t end = 0;
  for (ParameterInfo& parameter : parameters_) {
    parameter.offset = end;
    end = round_up(end + parameter.numel, kAlignment);
    numel_ += parameter.numel;
  }
  // Chunks start aligned too. So a rank's slice is aligned wherever the parameter starts inside the rank's chunk.
  chunk_ = round_up((end + world_size - 1) / world_size, kAlignment);
}

Slice UnitLayout::slice(const ParameterInfo& parameter, int rank) const {
  const std::int64_t first = std::max(parameter.offset, rank * chunk_);
  const std::int64_t last = std::min(parameter.offset + parameter.numel, (rank + 1) * chunk_);
  if (first >= last) return {};
  return {first - parameter.offset, last - first, first - rank * chunk_};
}

}  // namespace fsdp
