#include "agent/process/gang.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <cerrno>
#include <cstring>

#include "base/process_table.h"
#include "spec/exit_codes.h"

namespace agent::process {
namespace {

LaunchError system_failure(const std::string& what, int error) {
  return {what + ": " + std::strerror(error), may_pass(error), error};
}

std::vector<char*> pointers(const std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (const auto& text : texts) result.push_back(const_cast<char*>(text.c_str()));
  result.push_back(nullptr);
  return result;
}

/// Resets all signals to the state that a fresh process expects: none is blocked or ignored.
void reset_signals() {
  struct sigaction defaults {};
  defaults.sa_handler = SIG_DFL;
  for (int number = 1; number < NSIG; ++number) ::sigaction(number, &defaults, nullptr);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
}

/// True when a byte came; false when the other end went away.
bool wait_for_byte(int fd) {
  char byte;
  for (;;) {
    const auto count = ::read(fd, &byte, 1);
    if (count >= 0) return count == 1;
    if (errno != EINTR) return false;
  }
}

}  // namespace

/// A child of a process with several threads may only make system calls, so nothing is made after the fork.
struct Gang::Execution {
  int log;
  pid_t parent;
  std::vector<std::string> variables;
  std::vector<char*> argv, environment;
};

bool may_pass(int error) {
  return error == EAGAIN || error == ENOMEM || error == ENOSPC || error == EDQUOT || error == EMFILE ||
         error == ENFILE || error == EIO || error == ETXTBSY || error == ESTALE || error == EINTR;
}

Gang::Pipe Gang::make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw system_failure("cannot make a pipe", errno);
  return {base::Fd(ends[0]), base::Fd(ends[1])};
}

Gang::Gang(const GangPlan& plan)
    : program_(plan.program),
      as_a_shell_would_(plan.as_a_shell_would),
      argv_(plan.argv),
      open_files_(plan.open_files),
      working_folder_(::open(plan.working_folder.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC)) {
  if (!working_folder_) throw system_failure("cannot enter the working folder " + plan.working_folder, errno);
  null_ = base::Fd(::open("/dev/null", O_RDONLY | O_CLOEXEC));
  if (!null_) throw system_failure("cannot open /dev/null", errno);
  gate_ = make_pipe();
  failures_ = make_pipe();
  try {
    for (const auto& rank : plan.ranks) fork_rank(rank);
  } catch (...) {
    abandon();
    throw;
  }
}

Gang::~Gang() {
  if (gate_.write) abandon();
}

/// Closes the gate for good and waits until every rank has left.
void Gang::abandon() {
  gate_.write.reset();
  for (const auto& rank : ranks_) {
    ::kill(static_cast<pid_t>(rank.pid), SIGKILL);
    while (::waitpid(static_cast<pid_t>(rank.pid), nullptr, 0) < 0 && errno == EINTR) {
    }
  }
  ranks_.clear();
}

void Gang::fork_rank(const GangPlan::Rank& rank) {
  const base::Fd log(::open(rank.log.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0640));
  if (!log) throw system_failure("cannot open log file " + rank.log, errno);
  Execution execution{
      .log = log.get(), .parent = ::getpid(), .variables = {}, .argv = pointers(argv_), .environment = {}};
  for (const auto& [name, value] : rank.environment) execution.variables.push_back(name + "=" + value);
  execution.environment = pointers(execution.variables);
  const auto pid = ::fork();
  if (pid < 0) throw system_failure("cannot start a process for rank " + std::to_string(rank.number), errno);
  if (pid == 0) be_rank(execution);
  ::setpgid(pid, pid);  // the rank does it too: whoever is first
  ranks_.push_back({pid, 0});
  const auto stat = base::read_stat(pid);
  if (!stat) throw LaunchError("rank " + std::to_string(rank.number) + " vanished while starting", true);
  ranks_.back().start_time = stat->start_time;
}

void Gang::be_rank(const Execution& execution) const {
  ::setpgid(0, 0);
  reset_signals();
  int error = 0;
  if (::prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || ::fchdir(working_folder_.get()) != 0 ||
      ::dup2(null_.get(), STDIN_FILENO) < 0 || ::dup2(execution.log, STDOUT_FILENO) < 0 ||
      ::dup2(execution.log, STDERR_FILENO) < 0) {
    error = errno;
  }
  // Above 2 remain the gate and the way to say what failed; both go when the program is executed. The gate's other end
  // must not stay open here, or its closing would not be seen.
  const int high_gate = ::fcntl(gate_.read.get(), F_DUPFD_CLOEXEC, 10);
  const int high_failures = ::fcntl(failures_.write.get(), F_DUPFD_CLOEXEC, 10);
  const int gate = ::dup3(high_gate, 3, O_CLOEXEC);
  const int failures = ::dup3(high_failures, 4, O_CLOEXEC);
  ::close_range(5, ~0U, 0);
  if (!wait_for_byte(gate)) ::_exit(spec::kExitCannotStart);
  // A parent that died before the prctl above sends no signal.
  if (::getppid() != execution.parent) ::_exit(spec::kExitCannotStart);
  base::set_open_files(open_files_);
  if (error == 0) {
    auto* const argv = execution.argv.data();
    auto* const environment = execution.environment.data();
    as_a_shell_would_ ? ::execvpe(program_.c_str(), argv, environment) : ::execve(program_.c_str(), argv, environment);
    error = errno;
  }
  [[maybe_unused]] const auto told = ::write(failures, &error, sizeof error);
  ::_exit(spec::kExitCannotStart);
}

std::optional<LaunchError> Gang::open_gate() {
  const std::string bytes(ranks_.size(), 'g');
  for (std::size_t done = 0; done < bytes.size();) {
    const auto count = ::write(gate_.write.get(), bytes.data() + done, bytes.size() - done);
    if (count < 0 && errno != EINTR) {
      const auto failure = system_failure("cannot let the ranks go", errno);
      gate_.write.reset();  // the ranks that wait there leave
      return failure;
    }
    if (count > 0) done += static_cast<std::size_t>(count);
  }
  failures_.write.reset();
  int error = 0;
  ssize_t count;
  do {
    count = ::read(failures_.read.get(), &error, sizeof error);
  } while (count < 0 && errno == EINTR);
  gate_.write.reset();
  if (count == 0) return std::nullopt;
  return LaunchError(explain_exec(error), may_pass(error));
}

std::string Gang::explain_exec(int error) const {
  const auto what = "cannot execute " + program_;
  if (error == ENOENT && !as_a_shell_would_) return what + ": the interpreter named in its first line is missing";
  if (error == ENOEXEC) return what + ": not a program; give a script a first line such as #!/bin/sh";
  return what + ": " + std::strerror(error);
}

void Gang::signal(std::size_t index, int number) const {
  ::kill(-static_cast<pid_t>(ranks_.at(index).pid), number);
}

}  // namespace agent::process
