#include "agent/task/rank_process.h"

#include <sys/wait.h>

#include <cerrno>
#include <string>
#include <variant>

#include "agent/environment/rank_variables.h"
#include "agent/watch/agent_files.h"
#include "base/process_table.h"
#include "slurm/host_list.h"
#include "spec/variables.h"

namespace agent::task {
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

environment::RankPlace place_of(const rank::RankEnvironment& rank, const spec::Environment& inherited) {
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

/// The task's own environment, without muster's variables. The script has kept the job's libraries from the task, which
/// may have started with others.
spec::Environment base_of(const spec::Environment& inherited) {
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

}  // namespace

std::optional<std::string> variable_of(const spec::Environment& inherited, const protocol::TaskLaunch& launch,
                                       const char* name) {
  for (const auto* variables : {&launch.env, &inherited}) {
    if (const auto found = variables->find(name); found != variables->end()) return found->second;
  }
  return std::nullopt;
}

spec::Environment rank_environment(const spec::Environment& inherited, const protocol::TaskLaunch& launch,
                                   const rank::RankEnvironment& place,
                                   const std::optional<rank::Endpoint>& meeting_point) {
  spec::Environment given;
  if (const auto job = inherited.find("SLURM_JOB_ID"); job != inherited.end()) given[variable::kSlurmJob] = job->second;
  if (meeting_point)
    given.merge(environment::meeting_variables(meeting_point->host, std::to_string(meeting_point->port)));
  given.merge(watch::file_variables(watch::rank_files(launch.log_folder, static_cast<std::uint32_t>(place.rank))));
  return environment::rank_environment(
      {base_of(inherited), place_of(place, inherited), launch.own_launcher, std::move(given), launch.env});
}

RankProcess::RankProcess(const process::GangPlan& plan) : gang_(plan) {
  const auto failure = gang_.open_gate();
  if (!failure) return;
  while (::waitpid(pid(), nullptr, 0) < 0 && errno == EINTR) {
  }
  throw *failure;
}

void RankProcess::signal(int number) const {
  gang_.signal(0, number);
}

bool RankProcess::stopped() const {
  try {
    const auto stat = base::read_stat(pid());
    return stat && stat->is_stopped();
  } catch (const std::exception&) {
    return false;  // the kernel cannot be asked
  }
}

}  // namespace agent::task
