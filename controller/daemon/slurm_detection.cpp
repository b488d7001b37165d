#include "daemon/slurm_detection.h"

#include <algorithm>
#include <filesystem>

#include "daemon/environment.h"

namespace musterd {
namespace {

namespace fs = std::filesystem;

// The files that Slurm's commands read without SLURM_CONF. slurmd writes the last one when slurmctld sends it the
// configuration.
constexpr const char* kSlurmConfs[] = {"/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf",
                                       "/run/slurm/conf/slurm.conf"};

// The error of a Slurm command that finds no configuration or cannot read it; empty: it has one. A command that gets no
// answer from slurmctld has found its configuration.
std::string configuration_problem(slurm::CommandRunner& runner) {
  slurm::Command ask;
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

}  // namespace

std::string why_no_slurm(const std::string& wanted, slurm::CommandRunner& runner) {
  if (wanted == "no") return "musterd was started with --slurm no; start it with --slurm auto";
  for (const char* name : {"sbatch", "sinfo"}) {
    if (!slurm::find_in_path(name)) {
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

}  // namespace musterd
