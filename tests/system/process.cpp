#include "tests/system/process.h"

#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <algorithm>

#include <fstream>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <thread>

extern char** environ;

namespace test {
namespace {

std::vector<std::string> merged_environment(const std::map<std::string, std::string>& extra) {
  std::vector<std::string> result;
  for (char** e = environ; *e != nullptr; ++e) {
    const std::string_view entry = *e;
    const auto name = std::string(entry.substr(0, entry.find('=')));
    if (!entry.starts_with("MUSTER_") && !extra.contains(name)) result.emplace_back(entry);
  }
  for (const auto& [name, value] : extra) result.push_back(name + "=" + value);
  return result;
}

std::vector<char*> pointers(std::vector<std::string>& texts) {
  std::vector<char*> result;
  for (auto& text : texts) result.push_back(text.data());
  result.push_back(nullptr);
  return result;
}

}  // namespace

Process::Process(const std::vector<std::string>& argv, const std::map<std::string, std::string>& env,
                 const std::filesystem::path& out, const std::filesystem::path& err) {
  auto arguments = argv;
  auto environment = merged_environment(env);
  auto argument_pointers = pointers(arguments);
  auto environment_pointers = pointers(environment);
  pid_ = fork();
  if (pid_ < 0) throw std::runtime_error("fork failed");
  if (pid_ == 0) {
    setsid();
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // a test that is killed leaves nothing behind
    const int in = open("/dev/null", O_RDONLY);
    const int out_fd = open(out.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    const int err_fd = open(err.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0644);
    dup2(in, 0);
    dup2(out_fd, 1);
    dup2(err_fd, 2);
    syscall(SYS_close_range, 3U, ~0U, 0U);
    execve(argument_pointers[0], argument_pointers.data(), environment_pointers.data());
    _exit(127);
  }
}

Process::~Process() {
  if (!running()) return;
  signal(SIGTERM);
  if (wait(5s)) return;
  signal(SIGKILL);
  wait(5s);
}

void Process::signal(int number) {
  if (pid_ > 1 && running()) ::kill(pid_, number);
}

bool Process::running() {
  return !wait(0ms).has_value();
}

std::optional<int> Process::wait(std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  while (!ended_) {
    int status = 0;
    const pid_t got = waitpid(pid_, &status, WNOHANG);
    if (got == pid_) {
      ended_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    } else if (Clock::now() >= deadline) {
      break;
    } else {
      std::this_thread::sleep_for(5ms);
    }
  }
  return ended_;
}

Finished run(const std::vector<std::string>& argv, const std::map<std::string, std::string>& env,
             std::chrono::milliseconds limit) {
  const TemporaryFolder folder;
  const auto begun = Clock::now();
  Finished result;
  {
    Process process(argv, env, folder.path() / "out", folder.path() / "err");
    const auto exit = process.wait(limit);
    if (!exit) process.signal(SIGKILL);
    result.exit = exit.value_or(-1);
  }
  result.out = read_file(folder.path() / "out");
  result.err = read_file(folder.path() / "err");
  result.took = std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - begun);
  return result;
}

bool eventually(const std::function<bool()>& condition, std::chrono::milliseconds limit) {
  const auto deadline = Clock::now() + limit;
  for (;;) {
    const auto begun = Clock::now();
    if (condition()) return true;
    const auto ended = Clock::now();
    if (ended >= deadline) return false;
    // A look is often a program of its own. Tests that wait must not keep the processors busy.
    std::this_thread::sleep_for(std::clamp<Clock::duration>(6 * (ended - begun), 10ms, 400ms));
  }
}

}  // namespace test
