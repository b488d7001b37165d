#include "controller/executors/slurm/script_plan.h"

#include <algorithm>
#include <filesystem>

#include "controller/executors/slurm/attempt_files.h"
#include "slurm/host_list.h"
#include "spec/variables.h"

namespace executors::on_slurm {
namespace {

constexpr const char* kIndexMark = "@MUSTER_INDEX@";

/// The common name of a sweep's jobs: "tune" for "tune-0007".
std::string without_index(const std::string& name) {
  const auto dash = name.rfind('-');
  const bool numbered = dash != std::string::npos && dash > 0 && dash + 1 < name.size() &&
                        name.find_first_not_of("0123456789", dash + 1) == std::string::npos;
  return numbered ? name.substr(0, dash) : name;
}

std::vector<std::string> hosts_of(const std::string& list) {
  const auto hosts = ::slurm::expand_hosts(list);
  const auto* names = std::get_if<std::vector<std::string>>(&hosts);
  return names == nullptr ? std::vector<std::string>{} : *names;
}

void put(::slurm::Options& options, const char* name, std::uint32_t value) {
  if (value > 0) options[name] = std::to_string(value);
}

::slurm::Options options_of(const LaunchRequest& request) {
  ::slurm::Options options;
  put(options, "nodes", request.nodes);
  put(options, "ntasks", request.nodes * request.ranks_per_node);
  put(options, "ntasks-per-node", request.ranks_per_node);
  put(options, "time", static_cast<std::uint32_t>(slurm_minutes(request.time_limit).count()));
  // An admin's `scontrol requeue` works with it. The second run is never the attempt's.
  options["requeue"] = std::nullopt;
  for (const auto& [name, value] : request.slurm.options) options[name] = value;
  auto exclude = hosts_of(request.slurm.option("exclude"));
  for (const auto& node : request.exclude_nodes) {
    if (std::ranges::find(exclude, node) == exclude.end()) exclude.push_back(node);
  }
  if (!exclude.empty()) options["exclude"] = ::slurm::compress_hosts(exclude);
  return options;
}

/// A slurmctld that dies before it has written down a start makes the start again when it is back, and calls it the
/// first run. The run that makes the folder is the attempt's. A run that finds the folder leaves.
std::string claim_line(const std::filesystem::path& folder) {
  return "muster_begun=" + ::slurm::bash_quote((folder / "begun").string()) +
         "${SLURM_ARRAY_TASK_ID:+-$SLURM_ARRAY_TASK_ID}\n"
         "if ! mkdir \"$muster_begun\" 2> /dev/null && [ -d \"$muster_begun\" ]; then\n"
         "  echo \"" +
         std::string(kBegunAlready) +
         ": nothing to do\" >&2\n"
         "  exit 0\n"
         "fi";
}

/// [Note: libraries of the job's environment]
std::vector<std::string> with_libraries(const AgentProgram& agent, std::vector<std::string> arguments) {
  std::string start = std::string("exec env -u LD_LIBRARY_PATH -u LD_PRELOAD \"") + spec::variable::kRankLibraryPath +
                      "=${LD_LIBRARY_PATH-}\" \"" + spec::variable::kRankPreload + "=${LD_PRELOAD-}\" ";
  if (!agent.libraries.empty()) start += ::slurm::bash_quote("LD_LIBRARY_PATH=" + agent.libraries) + " ";
  std::vector<std::string> words = {"/bin/sh", "-c", start + "\"$@\"", "muster-agent", agent.path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

/// Makes the folders and files of an element, which cost nothing while it waited.
std::string prepare_line(const AgentProgram& agent, const std::string& set_file) {
  std::string line;
  for (const auto& word : with_libraries(agent, {"--prepare", "--set", set_file, "--index"})) {
    line += ::slurm::bash_quote(word) + " ";
  }
  return line + "\"$SLURM_ARRAY_TASK_ID\" || exit 1";
}

::slurm::BatchScript plan(const LaunchRequest& request, const std::string& comment,
                          const std::filesystem::path& folder) {
  ::slurm::BatchScript script;
  script.name = request.job_name;
  script.comment = comment;
  script.chdir = folder.string();
  script.output = {(folder / "slurm.log").string(), true};
  script.options = options_of(request);
  script.steps.leave_when_restarted = true;
  // The time limit began to run then. Slurm 22.05 has no variable for that moment.
  script.steps.setup = {claim_line(folder), std::string("export ") + spec::variable::kStartedAt + "=$(date +%s)"};
  script.steps.setup.insert(script.steps.setup.end(), request.slurm.setup.begin(), request.slurm.setup.end());
  script.steps.teardown = request.slurm.teardown;
  if (!request.slurm.health_check.empty()) script.steps.health_check = {telling_check(request.slurm.health_check)};
  script.launch.srun_args = request.slurm.srun_args;
  // A rank that has saved and left must not cut short a rank that is still saving. musterd itself ends a gang.
  script.launch.kill_on_bad_exit = false;
  return script;
}

}  // namespace

std::chrono::minutes slurm_minutes(core::Millis limit) {
  if (limit <= core::Millis(0)) return std::chrono::minutes(0);
  return std::chrono::ceil<std::chrono::minutes>(limit);
}

::slurm::BatchScript plan_script(const LaunchRequest& request, const AgentProgram& agent, const std::string& comment) {
  auto script = plan(request, comment, request.attempt_folder);
  script.launch.command = with_libraries(agent, {"--attempt", request.attempt_folder});
  return script;
}

::slurm::BatchScript plan_array(const std::vector<LaunchRequest>& requests, const AgentProgram& agent,
                                const std::string& comment, const std::string& set_file) {
  const auto folder = std::filesystem::path(set_file).parent_path();
  auto script = plan(requests.front(), comment, folder);
  // The elements of an array may differ in these.
  script.name = without_index(requests.front().job_name);
  script.output = {(folder / ("slurm-" + std::string(kIndexMark) + ".log")).string(), true};
  script.index_mark = kIndexMark;
  script.launch.command = with_libraries(agent, {"--set", set_file, "--index", kIndexMark});
  // Before the setup lines: the working folder may be one that is made now.
  script.steps.setup.insert(script.steps.setup.begin() + 1, prepare_line(agent, set_file));
  ::slurm::ArrayTasks tasks;
  for (std::uint32_t i = 0; i < requests.size(); ++i) tasks.tasks.push_back(i);
  tasks.parallelism = requests.front().slurm.array_parallelism;
  script.array = std::move(tasks);
  return script;
}

bool same_shape(const LaunchRequest& a, const LaunchRequest& b) {
  return a.nodes == b.nodes && a.ranks_per_node == b.ranks_per_node && a.time_limit == b.time_limit &&
         a.stop_grace == b.stop_grace && a.is_command == b.is_command && a.exclude_nodes == b.exclude_nodes &&
         a.slurm == b.slurm && a.base_env == b.base_env;
}

}  // namespace executors::on_slurm
