#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
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

/// Makes the link by which people find the rank's log where slurm.output names it. `variables`: Slurm's. A convenience:
/// the job runs without.
void link_log(const protocol::Launch& launch, const rank::RankEnvironment& own, const spec::Environment& variables);

/// The texts that the %-signs of a file name stand for, by the sign, named as in sbatch's manual ("filename pattern").
using PatternNames = std::map<char, std::string>;

/// Reads the names from Slurm's variables among these and from the system; `rank` and `node_rank` are muster's own.
PatternNames pattern_names(const spec::Environment& variables, const std::string& job_name, int rank, int node_rank);

/// The file name, numbers padded as in "%4t"; nullopt: without %t there is one file, and that is rank 0's. A sign that
/// is none of these stands for itself.
std::optional<std::string> expand_pattern(const std::string& pattern, const PatternNames& names);

/// Makes `link` a symbolic link to `log`, and the folders above it. An older link is replaced at once, so that it
/// always leads somewhere; anything else of that name is left alone. Throws std::runtime_error that says why there is
/// no link.
void place_link(const std::filesystem::path& link, const std::filesystem::path& log);

/// Makes what must lie on disk before the ranks of an element of an array start: its folders, the raised fence, its run
/// file and its launch file. The batch script calls it once, before its setup lines and before srun, so the fence
/// stands before a rank of this attempt can write, and ranks of an older one are refused from then on.
///
/// `set_file`: protocol::kSetFile, with protocol::kSetLaunchFile beside it. May be repeated. Throws std::runtime_error
/// or std::system_error in words for Slurm's log: also where the attempt is over already, because a later one has
/// raised the fence.
void prepare_element(const std::filesystem::path& set_file, std::uint32_t index,
                     const std::filesystem::path& attempt_folder);

}  // namespace agent::program
