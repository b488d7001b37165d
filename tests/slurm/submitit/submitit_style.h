#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

namespace slurm {

/// A value as submitit's users write it in Python.
struct SubmititValue;
using SubmititList = std::vector<std::string>;
using SubmititDict = std::vector<std::pair<std::string, SubmititValue>>;  // in the order of the source text
struct SubmititValue
    : std::variant<std::monostate, bool, std::int64_t, double, std::string, SubmititList, SubmititDict> {
  using variant::variant;
};

/// The arguments of one call of submitit's AutoExecutor.update_parameters, under its names ("timeout_min",
/// "slurm_partition").
using SubmititParameters = SubmititDict;

/// The other inputs of the script.
struct SubmititJob {
  std::string folder{};     // absolute; may hold %j, %A and so on
  std::string command{};    // a shell command; submitit's own is "<python> -u -m submitit.core._submit <folder>"
  std::uint64_t tasks = 1;  // submissions in one batch: more than one is an array
};

/// Why submitit refuses the parameters, one sentence each. Sentences about unknown names list the valid ones.
struct SubmititRefusal {
  std::vector<std::string> why{};
};

/// The parameters of SlurmExecutor after one or more calls. Later calls override earlier ones. Does what submitit 1.5.4
/// does: renames generic names, converts mem_gb, lets "slurm_" names override generic ones, drops names of other
/// executors, and refuses unknown names.
std::variant<SubmititParameters, SubmititRefusal> convert_submitit(const std::vector<SubmititParameters>& calls);

/// The batch script that submitit 1.5.4 writes for AutoExecutor(cluster="slurm") after these calls, byte for byte.
///
/// Refuses these values, for which submitit writes a script that no Slurm would accept:
/// - slurm_array_parallelism as a text, for one submission (for several, submitit refuses it too)
/// - mem_gb above 1e12
/// - a list or a dictionary in the role of a single value: slurm_partition = ["a", "b"]
/// - a list or a dictionary among slurm_additional_parameters
std::variant<std::string, SubmititRefusal> render_submitit(const SubmititJob& job,
                                                           const std::vector<SubmititParameters>& calls);

/// The names that update_parameters accepts: the generic ones, and those with the prefix "slurm_" (given without it).
std::vector<std::string> submitit_generic_names();
std::vector<std::string> submitit_slurm_names();

}  // namespace slurm
