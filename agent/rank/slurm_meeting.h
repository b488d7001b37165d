#pragma once

#include <functional>
#include <optional>
#include <string>

#include "agent/rank/environment.h"

namespace agent::rank {

/// Whether a host name leads to an address from here.
using Resolves = std::function<bool(const std::string& host)>;
bool resolves(const std::string& host);

/// Where the ranks of an srun'd step meet without a controller, from Slurm's variables alone, so that every rank works
/// out the same: the step's first node (127.0.0.1 if it is the only one; srun's own node where names don't resolve) and
/// a port in 10000..29999 that follows from the job's and the step's number. Nothing outside a step of Slurm. The port
/// is likely, not known, to be free: only a controller can hand out one that rank 0 holds already.
std::optional<Endpoint> slurm_meeting_point(const GetVariable& get, const Resolves& can_resolve = resolves);

/// The first name of Slurm's compressed host list: "node07" of "node[07-09],gpu-a". Empty if there is none.
std::string first_host(std::string_view list);

}  // namespace agent::rank
