#include "agent/supervisor/rank_environment.h"

#include "agent/environment/rank_variables.h"
#include "agent/watch/agent_files.h"
#include "spec/variables.h"

namespace agent::supervisor {
namespace {

namespace variable = spec::variable;

void add_devices(const protocol::LocalLaunch& launch, std::uint32_t rank, spec::Environment& to) {
  if (launch.allowed_devices) to[variable::kVisibleDevices] = *launch.allowed_devices;
  if (launch.gpus_per_rank == 0) return;
  if (launch.allowed_devices) to[variable::kGpus] = *launch.allowed_devices;
  auto& devices = to[variable::kVisibleDevices];
  devices = environment::visible_devices(devices, launch.gpus_per_rank, rank).value_or(devices);
}

}  // namespace

spec::Environment rank_environment(const protocol::LocalLaunch& launch, std::uint32_t rank, const std::string& node) {
  auto result = launch.base_env;
  environment::RankPlace place{.rank = rank, .world_size = launch.ranks, .local_rank = rank};
  place.local_world_size = launch.ranks;
  place.node_names = {node};
  if (launch.own_launcher)
    std::erase_if(result, [](const auto& one) { return environment::tells_of_a_rank(one.first); });
  for (auto& [name, value] :
       launch.own_launcher ? environment::own_launcher_variables(place) : environment::rank_variables(place)) {
    result[name] = value;
  }
  const auto meeting = environment::meeting_variables(launch.master_addr, std::to_string(launch.master_port));
  for (const auto& [name, value] : meeting) result[name] = value;
  add_devices(launch, rank, result);
  const auto files = watch::file_variables(watch::rank_files(launch.log_folder, rank));
  for (const auto& [name, value] : files) result[name] = value;
  for (const auto& [name, value] : launch.env) result[name] = value;
  return result;
}

spec::Environment agents_environment(protocol::LocalLaunch launch, std::uint32_t rank, const std::string& node) {
  launch.own_launcher = false;
  return rank_environment(launch, rank, node);
}

}  // namespace agent::supervisor
