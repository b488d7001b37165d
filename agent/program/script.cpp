#include "agent/program/script.h"

#include <signal.h>

#include <algorithm>
#include <cstdio>

#include "base/command.h"
#include "base/process_table.h"

namespace agent::program {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "slurm-bin";
constexpr const char* kStandIns[] = {"srun", "scontrol"};
constexpr std::chrono::milliseconds kScancelLimit{5'000};

/// A first line such as "#!/bin/bash -l".
bool is_login_shell(const std::vector<std::string>& argv) {
  return std::ranges::any_of(argv, [](const std::string& word) {
    const auto line = word.substr(0, word.find('\n'));
    return line.starts_with("#!") &&
           (line.find(" -l") != std::string::npos || line.find("--login") != std::string::npos);
  });
}

}  // namespace

void make_stand_ins(const fs::path& attempt_folder) {
  const auto folder = attempt_folder / kFolder;
  const auto program = base::programs_folder() / base::own_program().filename();
  fs::create_directories(folder);
  for (const auto* name : kStandIns) {
    fs::remove(folder / name);
    fs::create_symlink(program, folder / name);
  }
}

void add_stand_ins(const fs::path& attempt_folder, const std::vector<std::string>& argv, spec::Environment& to) {
  const auto folder = (attempt_folder / kFolder).native();
  auto& path = to["PATH"];
  path = folder + (path.empty() ? "" : ":" + path);
  if (!is_login_shell(argv)) return;
  for (const auto* name : kStandIns) {
    to["BASH_FUNC_" + std::string(name) + "%%"] = "() { '" + folder + "/" + name + "' \"$@\"\n}";
  }
}

bool is_scripts_own(int signal) {
  return signal == SIGHUP || signal == SIGINT || signal == SIGUSR1 || signal == SIGUSR2;
}

void ask_script(pid_t script, const std::string& slurm_job) {
  std::vector<base::ProcessStat> all;
  try {
    all = base::all_processes("/proc", true);
  } catch (const std::exception& error) {
    std::fprintf(stderr, "muster-agent: the script's processes cannot be told: %s\n", error.what());
    ::kill(-script, SIGTERM);
    return;
  }
  const bool waits = std::ranges::any_of(all, [&](const auto& one) { return one.parent == script && !one.is_dead(); });
  const bool on_slurm = !slurm_job.empty();
  for (const auto& one : all) {
    if (one.group != script || one.is_dead() || (on_slurm && one.name == "srun")) continue;
    if (one.pid == script && waits && !base::process_status(script).catches(SIGTERM)) continue;
    ::kill(static_cast<pid_t>(one.pid), SIGTERM);
  }
  if (!on_slurm) return;
  const auto done = base::ProcessRunner().run(
      {.argv = {"scancel", "--quiet", "--signal=TERM", slurm_job}, .time_limit = kScancelLimit});
  if (!done.succeeded()) {
    std::fprintf(stderr, "muster-agent: scancel --signal=TERM %s: %s\n", slurm_job.c_str(),
                 (done.could_not_start.empty() ? done.err : done.could_not_start).c_str());
  }
}

}  // namespace agent::program
