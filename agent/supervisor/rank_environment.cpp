#include "agent/supervisor/rank_environment.h"

#include "agent/environment/rank_variables.h"
#include "agent/environment/visible_devices.h"
#include "agent/protocol/variables.h"
#include "agent/watch/rank_files.h"

namespace agent::supervisor {
namespace {

namespace variable = contract::variable;

void add_devices(const contract::LocalLaunch& launch, std::uint32_t rank, launch::Environment& to) {
  if (launch.allowed_devices) to[variable::kVisibleDevices] = *launch.allowed_devices;
  if (launch.gpus_per_rank == 0) return;
  if (launch.allowed_devices) to[variable::kGpus] = *launch.allowed_devices;
  auto& devices = to[variable::kVisibleDevices];
  devices = launch::visible_devices(devices, launch.gpus_per_rank, rank).value_or(devices);
}

}  // namespace

launch::Environment rank_environment(const contract::LocalLaunch& launch, std::uint32_t rank, const std::string& node) {
  auto result = launch.base_env;
  launch::RankPlace place{.rank = rank, .world_size = launch.ranks, .local_rank = rank};
  place.local_world_size = launch.ranks;
  place.node_names = {node};
  if (launch.own_launcher) std::erase_if(result, [](const auto& one) { return launch::tells_of_a_rank(one.first); });
  for (auto& [name, value] :
       launch.own_launcher ? launch::own_launcher_variables(place) : launch::rank_variables(place)) {
    result[name] = value;
  }
  const auto meeting = launch::meeting_variables(launch.master_addr, std::to_string(launch.master_port));
  for (const auto& [name, value] : meeting) result[name] = value;
  add_devices(launch, rank, result);
  const auto files = beside::file_variables(beside::rank_files(launch.log_folder, rank));
  for (const auto& [name, value] : files) result[name] = value;
  for (const auto& [name, value] : launch.env) result[name] = value;
  return result;
}

launch::Environment agents_environment(contract::LocalLaunch launch, std::uint32_t rank, const std::string& node) {
  launch.own_launcher = false;
  return rank_environment(launch, rank, node);
}

}  // namespace agent::supervisor
