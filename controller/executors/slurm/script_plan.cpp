#include "controller/executors/slurm/script_plan.h"

#include <algorithm>
#include <filesystem>

#include "agent/protocol/variables.h"
#include "controller/executors/slurm/attempt_files.h"
#include "slurm/host_list.h"

namespace executors::on_slurm {
namespace {

constexpr std::int64_t kMebi = 1 << 20;
constexpr const char* kIndexMark = "@MUSTER_INDEX@";

std::string mebibytes(std::int64_t bytes) {
  return bytes <= 0 ? std::string() : std::to_string((bytes + kMebi - 1) / kMebi) + "M";
}

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

void fill_resources(const LaunchRequest& request, ::slurm::Resources& out) {
  const auto& wishes = request.slurm;
  out.nodes = request.nodes;
  out.tasks = request.nodes * request.ranks_per_node;
  out.tasks_per_node = request.ranks_per_node;
  out.cpus_per_task = request.cpus_per_rank;
  // Each rank sees its own GPUs and no others.
  if (request.gpus_per_rank > 0) out.gpus_per_task = std::to_string(request.gpus_per_rank);
  out.gres = wishes.gres;
  out.mem = mebibytes(wishes.mem_bytes);
  out.mem_per_cpu = mebibytes(wishes.mem_per_cpu_bytes);
  out.mem_per_gpu = mebibytes(wishes.mem_per_gpu_bytes);
  if (wishes.exclusive) out.exclusive = "";
  out.constraint = wishes.constraint;
  out.node_list = hosts_of(wishes.nodelist);
  out.exclude = hosts_of(wishes.exclude);
  for (const auto& node : request.exclude_nodes) {
    if (std::ranges::find(out.exclude, node) == out.exclude.end()) out.exclude.push_back(node);
  }
  out.licenses = wishes.licenses;
}

void fill_terms(const LaunchRequest& request, ::slurm::Terms& out) {
  const auto& wishes = request.slurm;
  out.partition = wishes.partition;
  out.account = wishes.account;
  out.qos = wishes.qos;
  out.reservation = wishes.reservation;
  out.time = slurm_minutes(request.time_limit);
  // An admin's `scontrol requeue` works with it. The second run is never the attempt's.
  out.requeue = true;
  if (wishes.nice) out.nice = *wishes.nice;
  out.mail_type = wishes.mail_type;
  out.mail_user = wishes.mail_user;
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
std::vector<std::string> with_libraries(const TaskProgram& task, std::vector<std::string> arguments) {
  std::string start = std::string("exec env -u LD_LIBRARY_PATH -u LD_PRELOAD \"") +
                      contract::variable::kRankLibraryPath + "=${LD_LIBRARY_PATH-}\" \"" +
                      contract::variable::kRankPreload + "=${LD_PRELOAD-}\" ";
  if (!task.libraries.empty()) start += ::slurm::bash_quote("LD_LIBRARY_PATH=" + task.libraries) + " ";
  std::vector<std::string> words = {"/bin/sh", "-c", start + "\"$@\"", "muster-task", task.path};
  words.insert(words.end(), arguments.begin(), arguments.end());
  return words;
}

/// Makes the folders and files of an element, which cost nothing while it waited.
std::string prepare_line(const TaskProgram& task, const std::string& set_file) {
  std::string line;
  for (const auto& word : with_libraries(task, {"--prepare", "--set", set_file, "--index"})) {
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
  fill_resources(request, script.resources);
  fill_terms(request, script.terms);
  script.steps.leave_when_restarted = true;
  // The time limit began to run then. Slurm 22.05 has no variable for that moment.
  script.steps.setup = {claim_line(folder), std::string("export ") + contract::variable::kStartedAt + "=$(date +%s)"};
  script.steps.setup.insert(script.steps.setup.end(), request.slurm.setup.begin(), request.slurm.setup.end());
  script.steps.teardown = request.slurm.teardown;
  if (!request.slurm.health_check.empty()) script.steps.health_check = {telling_check(request.slurm.health_check)};
  script.launch.srun_args = request.slurm.srun_args;
  // A rank that has saved and left must not cut short a rank that is still saving. musterd itself ends a gang.
  script.launch.kill_on_bad_exit = false;
  for (const auto& [name, value] : request.slurm.options) {
    script.additional.emplace_back(name, value.empty() ? std::nullopt : std::optional(value));
  }
  return script;
}

}  // namespace

std::chrono::minutes slurm_minutes(core::Millis limit) {
  if (limit <= core::Millis(0)) return std::chrono::minutes(0);
  return std::chrono::ceil<std::chrono::minutes>(limit);
}

::slurm::BatchScript plan_script(const LaunchRequest& request, const TaskProgram& task, const std::string& comment) {
  auto script = plan(request, comment, request.attempt_folder);
  script.launch.command = with_libraries(task, {"--attempt", request.attempt_folder});
  return script;
}

::slurm::BatchScript plan_array(const std::vector<LaunchRequest>& requests, const TaskProgram& task,
                                const std::string& comment, const std::string& set_file) {
  const auto folder = std::filesystem::path(set_file).parent_path();
  auto script = plan(requests.front(), comment, folder);
  // The elements of an array may differ in these.
  script.name = without_index(requests.front().job_name);
  script.output = {(folder / ("slurm-" + std::string(kIndexMark) + ".log")).string(), true};
  script.index_mark = kIndexMark;
  script.launch.command = with_libraries(task, {"--set", set_file, "--index", kIndexMark});
  // Before the setup lines: the working folder may be one that is made now.
  script.steps.setup.insert(script.steps.setup.begin() + 1, prepare_line(task, set_file));
  ::slurm::ArrayTasks tasks;
  for (std::uint32_t i = 0; i < requests.size(); ++i) tasks.tasks.push_back(i);
  tasks.parallelism = requests.front().slurm.array_parallelism;
  script.array = std::move(tasks);
  return script;
}

bool same_shape(const LaunchRequest& a, const LaunchRequest& b) {
  return a.nodes == b.nodes && a.ranks_per_node == b.ranks_per_node && a.cpus_per_rank == b.cpus_per_rank &&
         a.gpus_per_rank == b.gpus_per_rank && a.time_limit == b.time_limit && a.stop_grace == b.stop_grace &&
         a.is_command == b.is_command && a.exclude_nodes == b.exclude_nodes && a.slurm == b.slurm &&
         a.base_env == b.base_env;
}

}  // namespace executors::on_slurm
