#include "agent/environment/visible_devices.h"

#include <sstream>
#include <vector>

namespace agent::environment {

std::optional<std::string> visible_devices(const std::string& allowed, std::uint32_t gpus_per_rank,
                                           std::uint32_t local_rank) {
  std::vector<std::string> names;
  std::istringstream list(allowed);
  for (std::string name; std::getline(list, name, ',');) names.push_back(name);
  const auto first = std::size_t{local_rank} * gpus_per_rank;
  if (!names.empty() && first + gpus_per_rank > names.size()) return std::nullopt;
  std::string slice;
  for (std::size_t device = first; device < first + gpus_per_rank; ++device) {
    if (!slice.empty()) slice += ',';
    slice += names.empty() ? std::to_string(device) : names[device];
  }
  return slice;
}

}  // namespace agent::environment
