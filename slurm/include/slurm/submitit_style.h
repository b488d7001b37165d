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
using SubmititDict = std::vector<std::pair<std::string, SubmititValue>>;  // in the order written
struct SubmititValue
    : std::variant<std::monostate, bool, std::int64_t, double, std::string, SubmititList, SubmititDict> {
  using variant::variant;
};

/// One call of submitit's AutoExecutor.update_parameters: names as there ("timeout_min", "slurm_partition").
using SubmititParameters = SubmititDict;

/// What else decides the text.
struct SubmititJob {
  std::string folder{};     // absolute; may hold %j, %A and so on
  std::string command{};    // a shell command; submitit's own is "<python> -u -m submitit.core._submit <folder>"
  std::uint64_t tasks = 1;  // submissions in one batch: more than one is an array
};

/// Why submitit refuses the parameters, one sentence each; unknown names come with the list of valid ones.
struct SubmititRefusal {
  std::vector<std::string> why{};
};

/// The parameters of SlurmExecutor after one or more calls, later ones over earlier ones: generic names renamed, mem_gb
/// converted, "slurm_" over generic, other clusters' left out, unknown names refused as submitit 1.5.4 does.
std::variant<SubmititParameters, SubmititRefusal> convert_submitit(const std::vector<SubmititParameters>& calls);

/// Byte for byte the batch script that submitit 1.5.4 writes for AutoExecutor(cluster="slurm") after these calls.
///
/// Differences: submitit writes a script of these values, which no Slurm would take, and this refuses them.
/// - slurm_array_parallelism as a text, of one submission (of several both refuse it)
/// - mem_gb above 1e12
/// - a list or a dictionary where one value belongs: slurm_partition = ["a", "b"]
/// - a list or a dictionary among slurm_additional_parameters
std::variant<std::string, SubmititRefusal> render_submitit(const SubmititJob& job,
                                                           const std::vector<SubmititParameters>& calls);

/// Names that update_parameters takes: the generic ones, and those that follow "slurm_".
std::vector<std::string> submitit_generic_names();
std::vector<std::string> submitit_slurm_names();

}  // namespace slurm
