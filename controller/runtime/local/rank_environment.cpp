#include "runtime/local/rank_environment.h"

#include <unistd.h>

#include <sstream>
#include <string_view>
#include <vector>

namespace runtime::local {

Environment own_environment() {
  Environment environment;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == 0 || equals == std::string_view::npos) continue;
    environment.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  return environment;
}

std::optional<std::string> visible_devices(const std::string& allowed, std::uint32_t gpus_per_rank,
                                           core::RankNumber local_rank) {
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

Environment rank_environment(const LaunchFile& launch, const Environment& inherited, core::RankNumber rank) {
  Environment result;
  for (const auto& [name, value] : inherited) {
    if (!name.starts_with("MUSTER_")) result[name] = value;
  }
  result["RANK"] = result["LOCAL_RANK"] = std::to_string(rank);
  result["NODE_RANK"] = "0";
  result["WORLD_SIZE"] = result["LOCAL_WORLD_SIZE"] = std::to_string(launch.ranks);
  result["MASTER_ADDR"] = launch.master_addr;
  result["MASTER_PORT"] = std::to_string(launch.master_port);
  if (launch.gpus_per_rank > 0) {
    auto& devices = result["CUDA_VISIBLE_DEVICES"];
    devices = visible_devices(devices, launch.gpus_per_rank, rank).value_or(devices);
  }
  for (const auto& [name, value] : launch.env) result[name] = value;
  return result;
}

}  // namespace runtime::local
