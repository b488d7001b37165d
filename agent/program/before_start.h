#pragma once

#include <functional>
#include <string>

#include "agent/program/agent.h"

// The work of an agent on Slurm before its rank starts: nobody else on the node does it.
namespace agent::program {

/// A later attempt has the checkpoint folder. A controller that has forgotten this attempt, or is away, cannot say so.
bool is_fenced(const protocol::Launch& launch, const rank::RankEnvironment& own);

/// Where rank 0's program will listen. muster-worker finds that out by itself, with a port it holds already. Throws
/// std::runtime_error.
rank::Endpoint meet(ControllerLink& link, const rank::RankEnvironment& own);

/// Ends what an earlier attempt of the job has left on this node. An agent that was killed could not end what its rank
/// had left in sessions of their own. Where Slurm has no cgroups, nobody else does. `say` tells what is waited for.
/// False: `is_over` has become true meanwhile. Throws std::runtime_error if something stays.
bool end_earlier(const AgentPlace& agent, const rank::RankEnvironment& own, const Ending& ending,
                 const std::function<bool()>& is_over, const std::function<void(const std::string&)>& say);

/// Makes the link by which people find the rank's log where slurm.output names it. A convenience: the job runs without.
void link_log(const protocol::Launch& launch, const rank::RankEnvironment& own);

}  // namespace agent::program
