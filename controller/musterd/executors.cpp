#include "controller/musterd/executors.h"

#include <pwd.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <filesystem>

#include "base/command.h"
#include "base/usage_error.h"
#include "controller/common/tokens.h"
#include "controller/executors/slurm/slurm_attempt.h"
#include "controller/executors/slurm/slurm_submission.h"
#include "controller/musterd/musterd_environment.h"

namespace musterd {
namespace {

namespace fs = std::filesystem;

// The files that Slurm's commands read without SLURM_CONF. slurmd writes the last one when slurmctld sends it the
// configuration.
constexpr const char* kSlurmConfs[] = {"/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf",
                                       "/run/slurm/conf/slurm.conf"};

// The error of a Slurm command that finds no configuration or cannot read it; empty: it has one. A command that gets no
// answer from slurmctld has found its configuration.
std::string configuration_problem(base::CommandRunner& runner) {
  base::Command ask;
  ask.argv = {"sinfo", "--noheader", "--format=%R"};
  ask.time_limit = std::chrono::milliseconds(10'000);
  ask.unset = {"SINFO_*"};
  const auto said = runner.run(ask);
  if (!said.could_not_start.empty()) return said.could_not_start;
  for (const char* sign : {"configuration source", "process configuration file", "s_p_parse_file"}) {
    if (said.err.find(sign) == std::string::npos) continue;
    auto text = said.err;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    std::ranges::replace(text, '\n', ';');
    return text;
  }
  return {};
}

std::string own_user() {
  const passwd* entry = ::getpwuid(::geteuid());
  return entry == nullptr ? std::to_string(::geteuid()) : entry->pw_name;
}

executors::local::LocalOptions local_options(const ExecutorSettings& settings, const fs::path& agent) {
  executors::local::LocalOptions options;
  options.root = settings.data;
  options.agent_program = agent;
  options.open_files = settings.open_files;
  options.machine = settings.machine;
  return options;
}

bool can_run(const fs::path& file) {
  return ::access(file.c_str(), X_OK) == 0 && !fs::is_directory(file);
}

std::string missing_agent(const fs::path& file) {
  return file.string() +
         " is missing or cannot be run; install muster-agent beside musterd (./dev build makes all programs), or name "
         "it with --agent";
}

/// Why jobs cannot go to Slurm, with a remedy. Empty: Slurm's commands are installed and a cluster is configured.
/// `wanted` is the value of --slurm: "auto", "yes" or "no". With "yes", sinfo is run to find out, since Slurm may get
/// its configuration from elsewhere.
std::string reason_against_slurm(const std::string& wanted, base::CommandRunner& runner) {
  if (wanted == "no") return "musterd was started with --slurm no; start it with --slurm auto";
  for (const char* name : {"sbatch", "sinfo"}) {
    if (!base::find_in_path(name)) {
      return std::string("there is no ") + name +
             " in musterd's PATH; install Slurm's commands, and start musterd again";
    }
  }
  const std::string remedy = "; set SLURM_CONF to the cluster's slurm.conf, and start musterd again";
  const auto named = environment("SLURM_CONF");
  if (!named.empty() && !fs::exists(named)) return "SLURM_CONF names " + named + ", which does not exist" + remedy;
  if (wanted == "yes") {
    const auto problem = configuration_problem(runner);
    return problem.empty() ? "" : "Slurm's commands have no usable configuration (" + problem + ")" + remedy;
  }
  if (!named.empty()) return {};
  const bool found = std::ranges::any_of(kSlurmConfs, [](const char* file) { return fs::exists(file); });
  return found ? ""
               : std::string("sbatch is installed, but there is no slurm.conf (looked for ") + kSlurmConfs[0] + ")" +
                     remedy + ", with --slurm yes if the cluster sends it";
}

}  // namespace

fs::path program(const std::string& given, const std::string& name) {
  if (!given.empty()) {
    if (!can_run(given)) {
      throw base::UsageError("--" + name.substr(std::strlen("muster-")) + " " + given +
                             ": the file is missing or cannot be run; without this flag musterd uses the " + name +
                             " beside it");
    }
    return fs::absolute(given);
  }
  return fs::read_symlink("/proc/self/exe").parent_path() / name;
}

Executors::Executors(const ExecutorSettings& settings, common::Clock& clock)
    : agent_(program(settings.agent, "muster-agent")),
      local_(executors::local::make_local_executor(local_options(settings, agent_))),
      runner_(true, settings.open_files) {
  why_no_slurm_ = reason_against_slurm(settings.slurm, runner_);
  // Without muster-agent every attempt on Slurm would fail, until the job's budget is spent.
  agent_is_missing_ = why_no_slurm_.empty() && !can_run(agent_);
  if (agent_is_missing_) why_no_slurm_ = missing_agent(agent_) + ", and start musterd again";
  if (settings.slurm == "yes" && !why_no_slurm_.empty()) throw base::UsageError("--slurm yes: " + why_no_slurm_);
  if (!why_no_slurm_.empty()) return;
  // An attempt waits this long for accounting. A listing waits with it.
  const std::chrono::milliseconds history = executors::on_slurm::SlurmAttempt::kHistoryPatience;
  // A controller that asks as often as tests do gives a listing up sooner, too.
  const auto list = std::min<core::Millis>(slurm::ClientOptions{}.list_limit, 100 * settings.slurm_poll);
  client_ = std::make_unique<slurm::Client>(
      runner_, slurm::ClientOptions{.conf = environment("SLURM_CONF"), .list_limit = list, .history_limit = history});
  slurm_ = executors::on_slurm::make_slurm_executor(
      *client_, clock,
      // muster-agent needs the same libraries as musterd.
      executors::on_slurm::SlurmOptions{settings.data, agent_, environment("LD_LIBRARY_PATH"),
                                        common::store_name(settings.secret), own_user(), settings.slurm_poll});
  both_ = executors::make_routing_executor(*local_, *slurm_);
}

std::vector<std::string> Executors::problems() const {
  std::vector<std::string> all;
  if (!can_run(agent_)) all.push_back("no job can run: " + missing_agent(agent_));
  if (auto problem = local_->own_machine().problem; !problem.empty()) all.push_back(std::move(problem));
  if (agent_is_missing_) all.push_back("no job can go to Slurm: " + why_no_slurm_);
  return all;
}

}  // namespace musterd
