#pragma once

#include <optional>
#include <string>
#include <vector>

#include "agent/environment/rank_variables.h"
#include "agent/protocol/launch.h"
#include "agent/rank/environment.h"
#include "spec/variables.h"

namespace agent::program {

/// The facts from which an agent makes the environments of its ranks.
struct AgentPlace {
  protocol::Launch launch;
  spec::Environment inherited;  // of the agent's own process; counts on Slurm alone
  std::string node;             // this machine's name
};

/// A variable as the agent's ranks will find it: the job's own, else what Slurm gives the agent. On musterd's own
/// machine the job's own names of muster's alone: nothing else tells an agent anything.
std::optional<std::string> variable_of(const AgentPlace& agent, const char* name);

/// The ranks beside this agent: on musterd's own machine all of the attempt, on Slurm the task's one. `own` was read
/// with variable_of().
std::vector<environment::RankPlace> ranks_beside(const AgentPlace& agent, const rank::RankEnvironment& own);

/// A rank's whole environment; see [Note: a rank's environment] in spec/variables.h. `meeting_point`: where rank 0
/// listens, if the agent is to tell it.
spec::Environment rank_environment(const AgentPlace& agent, const environment::RankPlace& rank,
                                   const std::optional<rank::Endpoint>& meeting_point);

/// The rank's environment for the agent itself: with the variables of a rank, which a rank with its own launcher does
/// not get.
spec::Environment agents_environment(AgentPlace agent, const environment::RankPlace& rank,
                                     const std::optional<rank::Endpoint>& meeting_point);

}  // namespace agent::program
