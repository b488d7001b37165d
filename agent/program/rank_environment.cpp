#include "agent/program/rank_environment.h"

#include <string_view>
#include <thread>
#include <utility>
#include <variant>

#include "agent/environment/batch_variables.h"
#include "agent/program/script.h"
#include "agent/watch/agent_files.h"
#include "base/numbers.h"
#include "base/words.h"
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

/// Adds the things of Slurm that a script looks for where there is no Slurm: variables, srun and scontrol.
void add_batch(const AgentPlace& agent, spec::Environment& to) {
  const auto& launch = agent.launch;
  const auto text_of = [&](const char* name) {
    const auto found = launch.env.find(name);
    return found == launch.env.end() ? std::string() : found->second;
  };
  const auto& [of_node, cpus, partition] = *launch.batch;
  const auto& devices = launch.local->devices;
  environment::BatchPlace place{.job = base::whole_number<std::int64_t>(text_of(variable::kJobId)).value_or(0),
                                .name = launch.job_name,
                                .node = agent.node,
                                .partition = partition,
                                .working_folder = launch.working_folder,
                                .tasks = of_node,
                                .cpus_of_task = cpus,
                                .cpus_of_node = cpus > 0 ? cpus * of_node : std::thread::hardware_concurrency(),
                                .gpus = 0};
  if (!devices.empty() && !devices.front().empty()) {
    place.devices = devices.front();
    place.gpus = static_cast<std::uint32_t>(base::split(place.devices, ',').size());
  }
  for (auto& [name, value] : environment::batch_variables(place)) to[name] = value;
  add_stand_ins(text_of(variable::kAttemptFolder), launch.argv, to);
}

}  // namespace

std::optional<std::string> variable_of(const AgentPlace& agent, const char* name) {
  // A script is one process, whatever Slurm says of its tasks.
  if (agent.launch.batch && std::string_view(name) == "RANK") return "0";
  if (agent.launch.batch && std::string_view(name) == "WORLD_SIZE") return "1";
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
  if (meeting_point && !agent.launch.batch) {
    given = environment::meeting_variables(meeting_point->host, std::to_string(meeting_point->port));
  }
  const auto slurm_job = agent.inherited.find("SLURM_JOB_ID");
  if (!local && slurm_job != agent.inherited.end()) given[variable::kSlurmJob] = slurm_job->second;
  given.merge(watch::file_variables(watch::rank_files(agent.launch.log_folder, rank.rank)));
  if (local) add_devices(*local, rank.rank, given);
  auto base = local ? local->base_env : base_on_slurm(agent.inherited);
  if (local && agent.launch.batch) add_batch(agent, base);
  return environment::rank_environment({std::move(base), rank, agent.launch.own_launcher,
                                        agent.launch.batch.has_value(), std::move(given), agent.launch.env});
}

spec::Environment agents_environment(AgentPlace agent, const environment::RankPlace& rank,
                                     const std::optional<rank::Endpoint>& meeting_point) {
  agent.launch.own_launcher = false;
  agent.launch.batch.reset();
  return rank_environment(agent, rank, meeting_point);
}

}  // namespace agent::program
