#include "agent/program/rank_environment.h"

#include <string_view>
#include <utility>
#include <variant>

#include "agent/watch/agent_files.h"
#include "slurm/host_list.h"

namespace agent::program {
namespace {

namespace variable = spec::variable;

/// The step's nodes in the order of SLURM_NODEID; empty: not known.
std::vector<std::string> nodes_of_step(const spec::Environment& inherited) {
  for (const auto* name : {"SLURM_STEP_NODELIST", "SLURM_JOB_NODELIST"}) {
    const auto list = inherited.find(name);
    if (list == inherited.end()) continue;
    const auto hosts = slurm::expand_hosts(list->second);
    if (const auto* names = std::get_if<std::vector<std::string>>(&hosts); names != nullptr && !names->empty()) {
      return *names;
    }
  }
  return {};
}

environment::RankPlace place_on_slurm(const rank::RankEnvironment& rank, const spec::Environment& inherited) {
  const auto number = [](int value) { return static_cast<std::uint32_t>(value); };
  environment::RankPlace place{.rank = number(rank.rank),
                               .world_size = number(rank.world_size),
                               .local_rank = number(rank.local_rank),
                               .local_world_size = number(rank.local_world_size),
                               .node_rank = number(rank.node_rank)};
  place.node_names = nodes_of_step(inherited);
  place.nodes = place.node_names.empty() ? (place.world_size + place.local_world_size - 1) / place.local_world_size
                                         : static_cast<std::uint32_t>(place.node_names.size());
  return place;
}

/// The agent's own environment, without muster's variables. The script has kept the job's libraries from the agent,
/// which may have started with others.
spec::Environment base_on_slurm(const spec::Environment& inherited) {
  spec::Environment base;
  for (const auto& [name, value] : inherited) {
    if (!name.starts_with(variable::kPrefix)) base.emplace(name, value);
  }
  for (const auto& [name, kept_as] :
       {std::pair{"LD_LIBRARY_PATH", variable::kRankLibraryPath}, std::pair{"LD_PRELOAD", variable::kRankPreload}}) {
    const auto kept = inherited.find(kept_as);
    if (kept == inherited.end()) continue;
    base.erase(name);
    if (!kept->second.empty()) base[name] = kept->second;
  }
  return base;
}

void add_devices(const protocol::LocalLaunch& local, std::uint32_t rank, spec::Environment& to) {
  if (local.allowed_devices) to[variable::kVisibleDevices] = *local.allowed_devices;
  if (rank >= local.devices.size()) return;
  if (local.allowed_devices) to[variable::kGpus] = *local.allowed_devices;
  to[variable::kVisibleDevices] = local.devices[rank];
}

}  // namespace

std::optional<std::string> variable_of(const AgentPlace& agent, const char* name) {
  const bool is_local = agent.launch.local.has_value();
  if (is_local && !std::string_view(name).starts_with(variable::kPrefix)) return std::nullopt;
  for (const auto* variables : {&agent.launch.env, &agent.inherited}) {
    if (is_local && variables == &agent.inherited) continue;
    if (const auto found = variables->find(name); found != variables->end()) return found->second;
  }
  return std::nullopt;
}

std::vector<environment::RankPlace> ranks_beside(const AgentPlace& agent, const rank::RankEnvironment& own) {
  if (!agent.launch.local) return {place_on_slurm(own, agent.inherited)};
  std::vector<environment::RankPlace> all;
  const auto ranks = agent.launch.local->ranks;
  for (std::uint32_t rank = 0; rank < ranks; ++rank) {
    all.push_back(
        {.rank = rank, .world_size = ranks, .local_rank = rank, .local_world_size = ranks, .node_names = {agent.node}});
  }
  return all;
}

spec::Environment rank_environment(const AgentPlace& agent, const environment::RankPlace& rank,
                                   const std::optional<rank::Endpoint>& meeting_point) {
  const auto& local = agent.launch.local;
  spec::Environment given;
  if (meeting_point) {
    given = environment::meeting_variables(meeting_point->host, std::to_string(meeting_point->port));
  }
  const auto slurm_job = agent.inherited.find("SLURM_JOB_ID");
  if (!local && slurm_job != agent.inherited.end()) given[variable::kSlurmJob] = slurm_job->second;
  given.merge(watch::file_variables(watch::rank_files(agent.launch.log_folder, rank.rank)));
  if (local) add_devices(*local, rank.rank, given);
  return environment::rank_environment({local ? local->base_env : base_on_slurm(agent.inherited), rank,
                                        agent.launch.own_launcher, std::move(given), agent.launch.env});
}

spec::Environment agents_environment(AgentPlace agent, const environment::RankPlace& rank,
                                     const std::optional<rank::Endpoint>& meeting_point) {
  agent.launch.own_launcher = false;
  return rank_environment(agent, rank, meeting_point);
}

}  // namespace agent::program
