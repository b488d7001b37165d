#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "spec/variables.h"

namespace agent::environment {

/// Where a rank stands among the ranks of its attempt.
struct RankPlace {
  std::uint32_t rank = 0;
  std::uint32_t world_size = 1;
  std::uint32_t local_rank = 0;        // on its node
  std::uint32_t local_world_size = 1;  // on its node
  std::uint32_t node_rank = 0;
  std::uint32_t nodes = 1;
  std::vector<std::string> node_names = {};  // in the order of node_rank; empty: not known
};

/// The variables that tell a rank its place, whatever starts it: RANK and the like as torchrun sets them for a worker,
/// and MUSTER_NODES, MUSTER_NODELIST and MUSTER_LOCAL_RANK.
spec::Environment rank_variables(const RankPlace& place);

/// The variables that a command with launcher = "own" gets instead: on which of how many nodes it is, also by
/// torchrun's names for its options. Such a command is no rank, so it gets no RANK.
spec::Environment own_launcher_variables(const RankPlace& place);
/// The variables that a script for sbatch gets instead: it finds its place as Slurm tells it.
spec::Environment script_variables(const RankPlace& place);
/// True if a variable tells a program that it is one rank of several: RANK and the others of torchrun, and those by
/// which programs find their place among srun's tasks. A command with launcher = "own" gets none of them.
bool tells_of_a_rank(std::string_view name);

/// The layers of a rank's environment; see [Note: a rank's environment] in spec/variables.h.
struct RankLayers {
  spec::Environment base;  // what it begins with
  RankPlace place;
  bool own_launcher = false, batch = false;
  spec::Environment given;  // by the agent: where rank 0 listens, devices, files
  spec::Environment own;    // the job's own: wins over everything else
};
spec::Environment rank_environment(RankLayers layers);

/// Where rank 0 listens. torchrun meets there too, unless its command line says otherwise: the port that it takes else
/// is the same in all jobs of a node.
spec::Environment meeting_variables(const std::string& address, const std::string& port);

/// torchrun's variables about the run as a whole, for programs that are not muster-worker. `attempt` counts from 1.
/// TORCHELASTIC_RUN_ID makes Lightning take the ranks as they are, on Slurm too, where it would else requeue the Slurm
/// job by itself. TORCHELASTIC_USE_AGENT_STORE is never set: nobody but rank 0 serves the store.
spec::Environment torchelastic_variables(std::int64_t job, std::uint32_t attempt, std::uint32_t max_restarts);

/// The variables that this process's user would find after a fresh login: HOME, USER, LOGNAME and SHELL of the user
/// database, PATH and LANG with plain defaults; and PYTHONUNBUFFERED=1, so that a log shows what Python prints when it
/// prints it. Every call returns the same: the user database is asked once.
const spec::Environment& login_environment();

/// Which devices a rank sees when it is given `count`: its slice of 0, 1, 2, ..., or of `allowed`, a list as
/// CUDA_VISIBLE_DEVICES has it ("4,5"; empty: not limited). Nothing if the list is too short.
std::optional<std::string> visible_devices(const std::string& allowed, std::uint32_t count, std::uint32_t local_rank);

}  // namespace agent::environment
