#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "agent/rank/meeting.h"

namespace agent::rank {

/// Where this process stands among its job's processes, and who started it.
struct RankEnvironment {
  int rank = 0;                    ///< in [0, world_size)
  int local_rank = 0;              ///< in [0, local_world_size)
  int node_rank = 0;               ///< which node, from 0
  int world_size = 1;              ///< processes of the attempt
  int local_world_size = 1;        ///< processes of the attempt on this node
  std::optional<Endpoint> master;  ///< MASTER_ADDR:MASTER_PORT; absent when the controller hands out the address

  std::optional<Endpoint> controller;  ///< MUSTER_CONTROLLER; absent without a controller
  std::string controller_file;         ///< MUSTER_CONTROLLER_FILE: where the controller is now; "" without one
  std::string token;                   ///< MUSTER_RANK_TOKEN, a secret: never log it
  std::string job_id;                  ///< MUSTER_JOB_ID
  std::int64_t attempt = 0;            ///< MUSTER_ATTEMPT, from 1; 0 without a controller
  std::string attempt_folder;          ///< MUSTER_ATTEMPT_FOLDER: the attempt's own files; "" without a controller
  std::string run_file;                ///< MUSTER_RUN_FILE
  std::string metrics_file;            ///< MUSTER_METRICS_FILE, else MUSTER_REPORT; default metrics.rank<r>.jsonl
};

/// Looks up one environment variable; nothing when it is not set.
using GetVariable = std::function<std::optional<std::string>(const char* name)>;

/// True if a host name leads to an address from here.
using Resolves = std::function<bool(const std::string& host)>;
bool resolves(const std::string& host);

/// Where the ranks of an srun'd step meet without a controller, from Slurm's variables alone, so that every rank works
/// out the same: the step's first node (127.0.0.1 if it is the only one; srun's own node where names don't resolve) and
/// a port in 10000..29999 that follows from the job's and the step's number. Nothing outside a step of Slurm. The port
/// is likely, not known, to be free: only a controller can hand out one that rank 0 holds already.
std::optional<Endpoint> slurm_meeting_point(const GetVariable& get, const Resolves& can_resolve = resolves);

/// The first name of Slurm's compressed host list: "node07" of "node[07-09],gpu-a". Empty if there is none.
std::string first_host(std::string_view list);

/// Reads RANK, LOCAL_RANK, NODE_RANK, WORLD_SIZE, LOCAL_WORLD_SIZE, MASTER_ADDR, MASTER_PORT; where RANK is not set,
/// Slurm's variables of a step with more than one task or of an srun'd task (without a controller they also tell where
/// to meet, see slurm_meeting_point); else a single process. Throws
/// std::invalid_argument that names variable, value and remedy when they are malformed or contradict one another.
RankEnvironment read_environment(const GetVariable& get);

/// Reads this process's own environment in the same way.
RankEnvironment read_environment();

}  // namespace agent::rank
