#pragma once

#include <nlohmann/json.hpp>

#include <cstdint>
#include <optional>
#include <string>

#include "cli/submit.h"

namespace cli {

/// The memory that one rank of a job may use, as far as this program knows it.
struct RankMemory {
  std::int64_t bytes = 0;
  bool of_gpu = false;
  std::string of;  // "slurm.mem = 64GiB for 4 ranks"
};

/// A job with GPUs: `gpu_bytes`, unless that is 0. A job without: what [slurm] asks for, or this machine's memory if
/// `here` says that local jobs run on it. nullopt: not known.
std::optional<RankMemory> memory_of_rank(const muster::v1::JobSpec& spec, std::int64_t gpu_bytes, bool here);

/// Asks muster-worker for the plan of a recipe's job; see worker/plan/plan_command.h for its members. Throws a Failure
/// if there is no muster-worker beside this program or in PATH, or if it cannot plan the job.
nlohmann::ordered_json plan_of(const muster::v1::JobSpec& spec, const std::optional<RankMemory>& memory);

/// Throws a Failure if a job of the request does not fit into the memory of its ranks, by its plan. Jobs are planned
/// that train a recipe, have fsdp.check_memory and known memory, and of equal ones the first; at most kMostPlanned. A
/// job that cannot be planned passes: its ranks judge it.
void refuse_misfits(const Request& request, bool here);
inline constexpr std::size_t kMostPlanned = 16;

}  // namespace cli
