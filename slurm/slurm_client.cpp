#include "slurm/slurm_client.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <random>
#include <set>
#include <span>
#include <string_view>

#include "base/words.h"
#include "slurm/answer.h"
#include "slurm/parse.h"

namespace slurm {
namespace {

/// A random separator, which no job's name can contain on purpose.
std::string fresh_separator() {
  constexpr std::string_view kHex = "0123456789abcdef";
  thread_local std::mt19937 generator{std::random_device{}()};
  std::string text = "~";
  for (int i = 0; i < 8; ++i) text += kHex[generator() % kHex.size()];
  return text + "~";
}

Unreachable not_understood(const std::string& program, const std::string& problem) {
  return {program + ": answer not understood: " + problem};
}

template <class T>
Answer<T> read_answer(const std::string& program, Parsed<T> parsed) {
  if (auto* problem = std::get_if<std::string>(&parsed)) return not_understood(program, *problem);
  return std::get<T>(std::move(parsed));
}

/// The answer of a command that failed.
template <class T>
Answer<T> failed(const std::string& program, const base::CommandResult& result) {
  auto failure = explain_failure(program, result);
  if (failure.kind == Failure::kRefused) return Refused{std::move(failure.why)};
  return Unreachable{std::move(failure.why)};
}

/// A complaint of scancel that means that nothing is left to do.
bool is_over_already(const std::string& line) {
  return line.find("Invalid job id specified") != std::string::npos ||
         line.find("Job/step already completing or completed") != std::string::npos;
}

/// True if everything that scancel failed at is over already. A scancel without output gives Slurm's error number as
/// its exit code, cut to a byte: 2017 means no such job, 2021 means already completing or completed.
bool only_ended_jobs(const base::CommandResult& result) {
  constexpr int kNoSuchJob = 2017 & 0xff;
  constexpr int kAlreadyDone = 2021 & 0xff;
  bool any = false;
  for (const auto& line : base::split(result.err, '\n')) {
    if (base::trimmed(line).empty()) continue;
    if (!is_over_already(line)) return false;
    any = true;
  }
  return any || result.exit_code == kNoSuchJob || result.exit_code == kAlreadyDone;
}

/// The ids in scancel's form. Elements of one array are joined: "12_[0-4,9]".
std::vector<std::string> scancel_ids(const std::vector<JobId>& jobs) {
  std::vector<std::string> ids;
  std::map<std::uint64_t, std::set<std::uint32_t>> arrays;
  for (const auto& job : jobs) {
    if (job.array_task) {
      arrays[job.job].insert(*job.array_task);
    } else {
      ids.push_back(to_string(job));
    }
  }
  for (const auto& [job, tasks] : arrays) {
    const auto list = compress_tasks({tasks.begin(), tasks.end()});
    ids.push_back(std::to_string(job) + "_" + (tasks.size() == 1 ? list : "[" + list + "]"));
  }
  return ids;
}

/// Slurm's commands read variables with these prefixes as options.
constexpr std::array kOfSlurm{"SLURM_", "SBATCH_", "SQUEUE_", "SACCT_", "SCANCEL_", "SCONTROL_", "SINFO_", "SRUN_"};

bool is_of_slurm(std::string_view name) {
  return std::ranges::any_of(kOfSlurm, [&](const char* prefix) { return name.starts_with(prefix); });
}

/// The batch script calls srun. If no folder in `path` has srun, the folder of this process's srun is appended.
std::string path_to_srun(const std::string& path, const std::string& programs) {
  const auto file = programs.empty() ? base::find_in_path("srun") : std::optional(programs + "srun");
  const auto slash = file ? file->rfind('/') : std::string::npos;
  if (slash == std::string::npos || slash == 0) return path;
  const auto folder = file->substr(0, slash);
  if ((":" + path + ":").find(":" + folder + ":") != std::string::npos) return path;
  return path.empty() ? folder : path + ":" + folder;
}

}  // namespace

Client::Client(base::CommandRunner& runner, ClientOptions options) : runner_(runner), options_(std::move(options)) {
  const char* conf = std::getenv("SLURM_CONF");
  if (options_.conf.empty() && conf != nullptr) options_.conf = conf;
  options_.ids_per_command = std::max<std::size_t>(options_.ids_per_command, 1);
}

base::Command Client::command(const std::string& program, std::vector<std::string> arguments,
                              std::chrono::milliseconds limit) const {
  base::Command command;
  command.argv.push_back(options_.programs + program);
  command.argv.insert(command.argv.end(), std::make_move_iterator(arguments.begin()),
                      std::make_move_iterator(arguments.end()));
  command.time_limit = limit;
  for (const auto* prefix : kOfSlurm) command.unset.push_back(std::string(prefix) + "*");
  if (!options_.conf.empty()) command.environment.emplace_back("SLURM_CONF", options_.conf);
  if (program != "sbatch") {  // the job inherits sbatch's environment
    command.environment.emplace_back("LC_ALL", "C");
    command.environment.emplace_back("SLURM_TIME_FORMAT", "%s");
    // Otherwise scontrol cuts lists of array elements at 64 characters.
    if (program == "scontrol") command.environment.emplace_back("SLURM_BITSTR_LEN", "0");
  }
  return command;
}

Answer<std::string> Client::ask(const std::string& program, std::vector<std::string> arguments,
                                std::chrono::milliseconds limit) {
  auto result = runner_.run(command(program, std::move(arguments), limit));
  if (!result.succeeded()) return failed<std::string>(program, result);
  if (result.out_cut) {
    return not_understood(program, "more than " + std::to_string(result.out.size()) + " bytes");
  }
  // Some commands fail but exit with 0.
  if (result.out.empty() && !base::trimmed(result.err).empty()) {
    auto failure = explain_failure(program, result);
    if (failure.kind != Failure::kRefused) return Unreachable{std::move(failure.why)};
  }
  return std::move(result.out);
}

Answer<Done> Client::change(const std::string& program, std::vector<std::string> arguments) {
  const auto said = ask(program, std::move(arguments), options_.change_limit);
  if (said.refused()) return Refused{said.why(), understand_refused_change(said.why())};
  return said.then([](const auto&) -> Answer<Done> { return Done{}; });
}

// sbatch passes its own environment on to the job. The job must not see this process's variables.
SubmitAnswer Client::submit(const std::string& script, const std::vector<std::string>& arguments,
                            const std::vector<int>& keep_fds, const std::map<std::string, std::string>& environment) {
  std::vector<std::string> all = {"--parsable"};
  all.insert(all.end(), arguments.begin(), arguments.end());
  auto sbatch = command("sbatch", std::move(all), options_.submit_limit);
  sbatch.inherit = false;
  for (const auto& [name, value] : environment) {
    if (name != "PATH" && !is_of_slurm(name)) sbatch.environment.emplace_back(name, value);
  }
  const auto path = environment.find("PATH");
  sbatch.environment.emplace_back(
      "PATH", path_to_srun(path == environment.end() ? base::kPlainPath : path->second, options_.programs));
  sbatch.input = script;
  sbatch.keep_fds = keep_fds;
  const auto result = runner_.run(sbatch);
  if (!result.succeeded()) return failed_submission(result);
  const auto said = base::trimmed(result.out);
  const auto id = parse_job_id(said.substr(0, said.find(';')));
  if (!id) return Unsure{"sbatch: answer not understood: " + std::string(said.substr(0, 200))};
  return *id;
}

Answer<StartEstimate> Client::test_only(const std::string& script) {
  auto sbatch = command("sbatch", {"--test-only"}, options_.submit_limit);
  sbatch.environment.emplace_back("SLURM_TIME_FORMAT", "%s");
  sbatch.input = script;
  const auto result = runner_.run(sbatch);
  if (!result.succeeded()) return failed<StartEstimate>("sbatch", result);
  auto estimate = parse_start(result.err + "\n" + result.out);
  if (!estimate) return not_understood("sbatch --test-only", complaint("sbatch", result));
  return *std::move(estimate);
}

Answer<std::vector<ListedJob>> Client::list(const std::string& user) {
  const auto separator = options_.separator.empty() ? fresh_separator() : options_.separator;
  // --local: this cluster's own jobs, so that squeue does not ask for the federation each time. With -a jobs in hidden
  // partitions are there, too. squeue asks for the partitions in any case: two requests a listing.
  std::vector<std::string> arguments = {
      "-h", "-a", "--local", "-r", "-t", "all", "--noconvert", "-O", squeue_format(separator)};
  if (!user.empty()) arguments.insert(arguments.end(), {"-u", user});
  return ask("squeue", std::move(arguments), options_.list_limit).then([&](const std::string& said) {
    return read_answer("squeue", parse_squeue(said, separator));
  });
}

Answer<std::vector<ListedJob>> Client::find(std::uint64_t job) {
  const auto said = ask("scontrol", {"-o", "show", "job", std::to_string(job)}, options_.change_limit);
  if (said.refused() && said.why().find("Invalid job id specified") != std::string::npos) {
    return std::vector<ListedJob>{};
  }
  if (!said) return Unreachable{said.why()};
  if (base::trimmed(*said).empty()) return not_understood("scontrol show job", "nothing");
  return read_answer("scontrol show job", parse_shown_jobs(*said));
}

Answer<Done> Client::cancel(const std::vector<JobId>& jobs) {
  Answer<Done> answer = Done{};
  const auto ids = scancel_ids(jobs);
  for (std::size_t at = 0; at < ids.size(); at += options_.ids_per_command) {
    const auto some = std::span(ids).subspan(at, std::min(options_.ids_per_command, ids.size() - at));
    const auto result = runner_.run(command("scancel", {some.begin(), some.end()}, options_.change_limit));
    if (result.exit_code >= 0 && only_ended_jobs(result)) continue;
    if (result.succeeded() && base::trimmed(result.err).empty()) continue;
    auto failure = explain_failure("scancel", result);
    if (failure.kind != Failure::kRefused) return Unreachable{std::move(failure.why)};
    if (answer.has_value()) answer = Refused{std::move(failure.why)};
  }
  return answer;
}

Answer<Done> Client::hold(const JobId& job) {
  return change("scontrol", {"uhold", to_string(job)});
}
Answer<Done> Client::release(const JobId& job) {
  return change("scontrol", {"release", to_string(job)});
}

Answer<Done> Client::update_time_limit(const JobId& job, std::chrono::minutes limit) {
  const auto value = limit.count() > 0 ? std::to_string(limit.count()) : std::string("UNLIMITED");
  return change("scontrol", {"update", "JobId=" + to_string(job), "TimeLimit=" + value});
}

Answer<Done> Client::exclude(const JobId& job, const std::vector<std::string>& nodes) {
  return change("scontrol", {"update", "JobId=" + to_string(job), "ExcNodeList=" + base::joined(nodes, ",")});
}

Answer<std::vector<PastRun>> Client::history(const std::vector<std::uint64_t>& jobs) {
  std::vector<PastRun> all;
  for (std::size_t at = 0; at < jobs.size(); at += options_.ids_per_command) {
    const auto separator = options_.separator.empty() ? fresh_separator() : options_.separator;
    std::vector<std::string> ids;
    const auto end = std::min(at + options_.ids_per_command, jobs.size());
    for (auto i = at; i < end; ++i) ids.push_back(std::to_string(jobs[i]));
    const auto said = ask("sacct",
                          {"-n", "-p", "-D", "-X", "--noconvert", "--delimiter=" + separator, "-S",
                           "1970-01-02T00:00:00", "-o", sacct_format(), "-j", base::joined(ids, ",")},
                          options_.history_limit);
    auto parsed = said.then([&](const auto& text) { return read_answer("sacct", parse_sacct(text, separator)); });
    if (!parsed) return parsed;
    all.insert(all.end(), parsed->begin(), parsed->end());
  }
  std::ranges::stable_sort(all, {}, [](const PastRun& run) { return run.started.value_or(Time::max()); });
  return all;
}

Answer<std::vector<Partition>> Client::partitions() {
  return ask("scontrol", {"-a", "-o", "show", "partition"}, options_.change_limit).then([](const std::string& said) {
    if (said.starts_with("No partitions")) return Answer(std::vector<Partition>());
    return read_answer("scontrol show partition", parse_partitions(said));
  });
}

Answer<std::vector<Node>> Client::nodes() {
  return ask("scontrol", {"-a", "-o", "show", "node"}, options_.change_limit).then([](const std::string& said) {
    if (said.starts_with("No nodes")) return Answer(std::vector<Node>());
    return read_answer("scontrol show node", parse_nodes(said));
  });
}

Answer<ClusterConfig> Client::config() {
  return ask("scontrol", {"show", "config"}, options_.change_limit).then([](const std::string& said) {
    return read_answer("scontrol show config", parse_config(said));
  });
}

}  // namespace slurm
