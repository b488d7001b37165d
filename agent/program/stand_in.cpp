#include "agent/program/stand_in.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <iostream>
#include <optional>
#include <stdexcept>

#include "agent/environment/batch_variables.h"
#include "agent/environment/rank_variables.h"
#include "agent/program/before_start.h"
#include "base/fd.h"
#include "base/host_name.h"
#include "base/numbers.h"
#include "base/words.h"
#include "slurm/host_list.h"
#include "slurm/option_words.h"

namespace agent::program {
namespace {

constexpr std::uint32_t kMostTasks = 4096;
constexpr int kCannotStart = 127;

/// Problems for people, said with the command's name.
struct Refused : std::runtime_error {
  using std::runtime_error::runtime_error;
};

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : value;
}

/// The step that srun's options and the script's variables describe.
struct Step {
  std::uint32_t tasks = 1, cpus_of_task = 0, gpus_of_task = 0;
  std::string folder, output, error;
  spec::Environment more = {};  // of --export
  bool none_exported = false, labels = false, kills = false;
  std::vector<std::string> command;
};

std::uint32_t count_of(const std::string& option, const std::string& text, std::uint32_t low) {
  const auto number = base::whole_number<std::uint32_t>(text);
  if (!number || *number < low || *number > kMostTasks) {
    throw Refused(option + " " + text + ": want a whole number from " + std::to_string(low) + " to " +
                  std::to_string(kMostTasks));
  }
  return *number;
}

void take_export(const std::string& value, Step& step) {
  step.none_exported = true;
  for (const auto& item : base::split(value, ',')) {
    const auto equals = item.find('=');
    if (item == "ALL") {
      step.none_exported = false;
    } else if (equals != std::string::npos) {
      step.more[item.substr(0, equals)] = item.substr(equals + 1);
    } else if (const char* here = std::getenv(item.c_str()); here != nullptr) {
      step.more[item] = here;
    }
  }
}

Step step_of(const std::vector<std::string>& words) {
  const auto read = slurm::read_option_words(words, slurm::Reader::kSrun);
  if (!read.problems.empty()) throw Refused(read.problems.front());
  Step step;
  step.command = read.others;
  std::uint32_t tasks = 0, of_node = 0;
  for (const auto& [name, text, typed] : read.options) {
    const auto value = text.value_or("");
    if (name == "ntasks") tasks = count_of("--ntasks", value, 1);
    if (name == "ntasks-per-node") of_node = count_of("--ntasks-per-node", value, 1);
    if (name == "cpus-per-task") step.cpus_of_task = count_of("--cpus-per-task", value, 1);
    if (name == "gpus-per-task") {
      step.gpus_of_task = count_of("--gpus-per-task", value.substr(value.rfind(':') + 1), 0);
    }
    if (name == "nodes" && value != "1" && value != "1-1") {
      throw Refused("--nodes " + value + ": this job runs without Slurm, on one node");
    }
    if (name == "het-group" || name == "multi-prog") throw Refused("--" + name + ": want Slurm for it");
    if (name == "chdir") step.folder = value;
    if (name == "output" && value != "none") step.output = value;
    if (name == "error" && value != "none") step.error = value;
    if (name == "export") take_export(value, step);
    if (name == "label") step.labels = true;
    if (name == "kill-on-bad-exit") step.kills = value != "0";
  }
  if (std::ranges::find(step.command, ":") != step.command.end()) throw Refused("\":\": want Slurm for several parts");
  if (tasks == 0) tasks = of_node;
  if (tasks == 0) {
    if (const auto all = variable("SLURM_NTASKS"); !all.empty()) tasks = count_of("SLURM_NTASKS", all, 1);
  }
  step.tasks = std::max(tasks, 1U);
  if (step.gpus_of_task == 0) {
    step.gpus_of_task = base::whole_number<std::uint32_t>(variable("SLURM_GPUS_PER_TASK")).value_or(0);
  }
  if (step.command.empty()) throw Refused("want a program to start; srun --help of Slurm has the options");
  return step;
}

/// The task's log file; nullopt: the output of srun.
std::optional<std::string> file_of(const Step& step, const std::string& pattern, std::uint32_t task) {
  if (pattern.empty()) return std::nullopt;
  auto names = pattern_names(spec::own_environment(), variable("SLURM_JOB_NAME"), static_cast<int>(task), 0);
  names['s'] = "0";
  names['J'] = names['j'] + ".0";
  const auto name = expand_pattern(pattern, names);
  // Without %t one file has the output of all tasks.
  const auto whole = name ? *name : *expand_pattern(pattern, [&] {
    names['t'] = "0";
    return names;
  }());
  return step.folder.empty() ? whole : (std::filesystem::path(step.folder) / whole).native();
}

/// Starts a task's process. The calling process is the parent until it ends.
class Tasks {
 public:
  explicit Tasks(const Step& step) : step_(step) {}

  int run() {
    sigset_t set;
    sigemptyset(&set);
    for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM, SIGUSR1, SIGUSR2, SIGALRM, SIGCHLD})
      sigaddset(&set, number);
    ::sigprocmask(SIG_BLOCK, &set, nullptr);
    for (std::uint32_t task = 0; task < step_.tasks; ++task) start(task);
    while (living_ > 0) {
      int number = 0;
      if (::sigwait(&set, &number) != 0) continue;
      if (number != SIGCHLD) {
        signal_all(number);
      } else {
        reap();
      }
    }
    for (const auto pid : labelers_) ::waitpid(pid, nullptr, 0);
    return exit_;
  }

 private:
  void start(std::uint32_t task) {
    int ends[2] = {-1, -1};
    if (step_.labels && ::pipe2(ends, O_CLOEXEC) != 0)
      throw Refused(std::string("cannot make a pipe: ") + std::strerror(errno));
    base::Fd from(ends[0]), to(ends[1]);
    const auto parent = ::getpid();
    const auto pid = ::fork();
    if (pid < 0) {
      const int error = errno;
      signal_all(SIGKILL);
      throw Refused("cannot start task " + std::to_string(task) + ": " + std::strerror(error));
    }
    if (pid == 0) be_task(task, parent, to.get());
    ::setpgid(pid, pid);  // as the task itself does; whoever comes first
    pids_.push_back(pid);
    ++living_;
    if (!step_.labels) return;
    const auto labeler = ::fork();
    if (labeler == 0) label(task, from.get(), std::move(to));
    if (labeler > 0) labelers_.push_back(labeler);
  }

  [[noreturn]] void be_task(std::uint32_t task, pid_t parent, int labeled) const {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (::getppid() != parent) ::_exit(kCannotStart);
    ::setpgid(0, 0);
    sigset_t none;
    sigemptyset(&none);
    ::sigprocmask(SIG_SETMASK, &none, nullptr);
    set_environment(task);
    const auto fail = [&](const std::string& what) {
      std::fprintf(stderr, "srun: error: task %u: %s: %s\n", task, what.c_str(), std::strerror(errno));
      ::_exit(errno == ENOENT ? kCannotStart : kCannotStart - 1);
    };
    if (task > 0) {
      const base::Fd null(::open("/dev/null", O_RDONLY | O_CLOEXEC));
      ::dup2(null.get(), STDIN_FILENO);
    }
    if (labeled >= 0) {
      ::dup2(labeled, STDOUT_FILENO);
      ::dup2(labeled, STDERR_FILENO);
    }
    if (const auto file = file_of(step_, step_.output, task)) {
      if (!open_log(*file, STDOUT_FILENO)) fail(*file);
      if (step_.error.empty()) ::dup2(STDOUT_FILENO, STDERR_FILENO);
    }
    if (const auto file = file_of(step_, step_.error, task); file && !open_log(*file, STDERR_FILENO)) fail(*file);
    if (!step_.folder.empty() && ::chdir(step_.folder.c_str()) != 0) fail(step_.folder);
    std::vector<char*> argv;
    for (const auto& word : step_.command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    ::execvp(argv[0], argv.data());
    fail(step_.command[0]);
    ::_exit(kCannotStart);
  }

  static bool open_log(const std::string& file, int as) {
    const base::Fd log(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
    return log && ::dup2(log.get(), as) >= 0;
  }

  void set_environment(std::uint32_t task) const {
    const auto devices = variable(spec::variable::kVisibleDevices);
    if (step_.none_exported) {
      for (const auto& [name, value] : spec::own_environment()) {
        if (!name.starts_with("SLURM") && !name.starts_with(spec::variable::kPrefix) && name != "PATH")
          ::unsetenv(name.c_str());
      }
    }
    auto all = environment::step_variables({task, step_.tasks, step_.cpus_of_task, base::node_name()});
    all["SLURM_TASK_PID"] = std::to_string(::getpid());
    if (step_.gpus_of_task > 0) {
      if (const auto own = environment::visible_devices(devices, step_.gpus_of_task, task)) {
        all[spec::variable::kVisibleDevices] = *own;
      }
    }
    for (const spec::Environment* more : {static_cast<const spec::Environment*>(&all), &step_.more}) {
      for (const auto& [name, value] : *more) ::setenv(name.c_str(), value.c_str(), 1);
    }
  }

  /// Copies a task's lines to srun's output with the task's number before each, until the task has closed them.
  [[noreturn]] static void label(std::uint32_t task, int from, base::Fd to) {
    ::prctl(PR_SET_PDEATHSIG, SIGKILL);
    to.reset();
    const auto mark = std::to_string(task) + ": ";
    std::string line;
    char buffer[4096];
    const auto put = [&] {
      const auto text = mark + line;
      [[maybe_unused]] const auto written = ::write(STDOUT_FILENO, text.data(), text.size());
      line.clear();
    };
    for (ssize_t count = 0; (count = ::read(from, buffer, sizeof buffer)) > 0 || (count < 0 && errno == EINTR);) {
      for (ssize_t i = 0; i < count; ++i) {
        line += buffer[i];
        if (buffer[i] == '\n') put();
      }
    }
    if (!line.empty()) {
      line += '\n';
      put();
    }
    ::_exit(0);
  }

  /// Each task is a process group, so that its data loaders and the like hear of a signal, too.
  void signal_all(int number) const {
    for (const auto pid : pids_) {
      if (pid > 1) ::kill(-pid, number);
    }
  }

  void reap() {
    for (std::size_t task = 0; task < pids_.size(); ++task) {
      int status = 0;
      if (pids_[task] <= 1 || ::waitpid(pids_[task], &status, WNOHANG) != pids_[task]) continue;
      pids_[task] = -1;
      --living_;
      const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (code == 0) continue;
      exit_ = std::max(exit_, code);
      std::fprintf(stderr, "srun: error: task %zu: %s %d\n", task,
                   WIFSIGNALED(status) ? "ended by signal" : "exited with exit code",
                   WIFSIGNALED(status) ? WTERMSIG(status) : code);
      if (step_.kills) signal_all(SIGKILL);
    }
  }

  const Step& step_;
  std::vector<pid_t> pids_;      // -1: it has ended
  std::vector<pid_t> labelers_;  // the processes that write labels
  std::size_t living_ = 0;
  int exit_ = 0;
};

}  // namespace

int run_srun(const std::vector<std::string>& words) {
  try {
    const auto step = step_of(words);
    return Tasks(step).run();
  } catch (const Refused& problem) {
    std::fprintf(stderr, "srun: error: %s\n", problem.what());
    return 1;
  }
}

int run_scontrol(const std::vector<std::string>& words) {
  const auto is = [&](std::size_t at, std::string_view word) {
    return at < words.size() && words[at].size() >= 2 && word.starts_with(words[at]);
  };
  if (is(0, "show") && is(1, "hostnames")) {
    const auto list = words.size() > 2 ? words[2] : variable("SLURM_JOB_NODELIST");
    const auto hosts = slurm::expand_hosts(list);
    const auto* names = std::get_if<std::vector<std::string>>(&hosts);
    if (names == nullptr) {
      std::fprintf(stderr, "scontrol: error: %s is no list of hosts\n", list.c_str());
      return 1;
    }
    for (const auto& name : *names) std::cout << name << "\n";
    return 0;
  }
  if (is(0, "requeue")) {
    std::fprintf(
        stderr,
        "scontrol: error: this job runs without Slurm; to be started again, let the script end with exit code 99\n");
    return 1;
  }
  std::fprintf(stderr,
               "scontrol: error: this job runs without Slurm, which only \"scontrol show hostnames\" does not need\n");
  return 1;
}

}  // namespace agent::program
