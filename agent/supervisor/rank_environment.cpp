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
  const auto inherited = launch.base_env.find(variable::kVisibleDevices);
  const auto all = launch.allowed_devices.value_or(inherited == launch.base_env.end() ? "" : inherited->second);
  to[variable::kVisibleDevices] = environment::visible_devices(all, launch.gpus_per_rank, rank).value_or(all);
}

}  // namespace

spec::Environment rank_environment(const protocol::LocalLaunch& launch, std::uint32_t rank, const std::string& node) {
  environment::RankPlace place{.rank = rank, .world_size = launch.ranks, .local_rank = rank};
  place.local_world_size = launch.ranks;
  place.node_names = {node};
  auto given = environment::meeting_variables(launch.master_addr, std::to_string(launch.master_port));
  given.merge(watch::file_variables(watch::rank_files(launch.log_folder, rank)));
  add_devices(launch, rank, given);
  return environment::rank_environment({launch.base_env, place, launch.own_launcher, std::move(given), launch.env});
}

spec::Environment agents_environment(protocol::LocalLaunch launch, std::uint32_t rank, const std::string& node) {
  launch.own_launcher = false;
  return rank_environment(launch, rank, node);
}

}  // namespace agent::supervisor
