#include "controller/executors/local/start.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <sstream>
#include <system_error>

#include "agent/protocol/attempt_folder.h"
#include "base/durable_file.h"
#include "base/gpus.h"
#include "spec/key_names.h"

namespace executors::local {
namespace {

constexpr std::uint16_t kLowest = 10000;  // well-known services live below
constexpr std::uint16_t kFew = 256;       // a range smaller than this is not worth having

/// The larger of the two parts beside the ephemeral range; all of it if it leaves next to nothing.
PortPicker::Range outside(PortPicker::Range ephemeral) {
  const int below = int{ephemeral.first} - kLowest;
  const int above = 65535 - int{ephemeral.second};
  if (below >= above && below >= kFew) return {kLowest, static_cast<std::uint16_t>(ephemeral.first - 1)};
  if (above >= kFew) return {static_cast<std::uint16_t>(ephemeral.second + 1), 65535};
  return {kLowest, 65535};
}

bool is_free(std::uint16_t port) {
  const base::Fd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  // No port is to blame for that, and every other would fail the same way.
  if (!socket && base::lacks_room(errno))
    throw std::system_error(errno, std::generic_category(), "cannot look for a port");
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_ANY);
  address.sin_port = htons(port);
  return socket && ::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
}

using Clock = std::chrono::steady_clock;
using agent::protocol::kLockFd;
using agent::protocol::kReportFd;
using base::Fd;

bool has_nul(const std::string& text) {
  return text.find('\0') != std::string::npos;
}

void check_ranks(const LaunchRequest& request) {
  if (request.nodes != 1) {
    throw Impossible("the local executor has one node; job asks for " + std::to_string(request.nodes) +
                     ": set nodes = 1, or run it on Slurm");
  }
  if (request.ranks_per_node < 1 || request.ranks_per_node > kMaxRanks) {
    throw Impossible("ranks_per_node = " + std::to_string(request.ranks_per_node) + ": want 1 to " +
                     std::to_string(kMaxRanks));
  }
}

void check_texts(const LaunchRequest& request) {
  for (const auto& argument : request.argv) {
    if (has_nul(argument)) throw Impossible("the command holds a NUL byte: remove it");
  }
  for (const auto& [name, value] : request.env) {
    if (name.empty() || name.find('=') != std::string::npos || has_nul(name)) {
      throw Impossible("env \"" + name + "\": a variable's name is not empty and holds neither '=' nor NUL");
    }
    if (has_nul(value)) throw Impossible("env \"" + name + "\": the value holds a NUL byte: remove it");
  }
}

void check_working_folder(const std::string& folder) {
  struct stat found {};
  if (!folder.starts_with('/')) throw Impossible("working folder \"" + folder + "\": want an absolute path");
  if (::stat(folder.c_str(), &found) != 0) {
    const std::string remedy = errno == ENOENT ? "; create it, or correct the job file" : "";
    throw Impossible("working folder " + folder + ": " + std::strerror(errno) + remedy);
  }
  if (!S_ISDIR(found.st_mode)) throw Impossible("working folder " + folder + " is not a folder");
  if (::access(folder.c_str(), X_OK) != 0) {
    throw Impossible("working folder " + folder + ": " + std::strerror(errno) + "; let this user enter it");
  }
}

enum class Found { kNothing, kFolder, kNotExecutable, kProgram };

Found look_at(const std::filesystem::path& path) {
  struct stat found {};
  if (::stat(path.c_str(), &found) != 0) return Found::kNothing;
  if (S_ISDIR(found.st_mode)) return Found::kFolder;
  return ::access(path.c_str(), X_OK) == 0 ? Found::kProgram : Found::kNotExecutable;
}

std::string search_path(const LaunchRequest& request) {
  for (const auto* variables : {&request.env, &request.base_env}) {
    if (const auto set = variables->find("PATH"); set != variables->end()) return set->second;
  }
  return "/usr/local/bin:/usr/bin:/bin";
}

std::string not_executable_text(const std::string& program) {
  return "program " + program + " is not executable; make it so with chmod +x " + program;
}

std::string find_program(const LaunchRequest& request) {
  if (request.argv.empty() || request.argv[0].empty()) throw Impossible("the command is empty");
  const auto& name = request.argv[0];
  const std::filesystem::path working = request.working_folder;
  if (name.find('/') != std::string::npos) {
    switch (look_at(working / name)) {
      case Found::kProgram:
        return name;
      case Found::kFolder:
        throw Impossible("program " + name + " is a folder");
      case Found::kNotExecutable:
        throw Impossible(not_executable_text(name));
      case Found::kNothing:
        throw Impossible("program " + name + " not found (looked from the working folder " + request.working_folder +
                         ")");
    }
  }
  const auto path = search_path(request);
  std::string not_executable;
  std::istringstream folders(path);
  for (std::string folder; std::getline(folders, folder, ':');) {
    const auto candidate = working / folder / name;
    const auto found = look_at(candidate);
    if (found == Found::kProgram) return candidate.string();
    if (found == Found::kNotExecutable && not_executable.empty()) not_executable = candidate.string();
  }
  if (!not_executable.empty()) throw Impossible(not_executable_text(not_executable));
  throw Impossible("program " + name + " not found in PATH (" + path + "); give its full path");
}

/// posix_spawn's two records, freed at the end.
struct SpawnPlan {
  posix_spawn_file_actions_t actions;
  posix_spawnattr_t attributes;
  SpawnPlan() {
    ::posix_spawn_file_actions_init(&actions);
    ::posix_spawnattr_init(&attributes);
  }
  ~SpawnPlan() {
    ::posix_spawn_file_actions_destroy(&actions);
    ::posix_spawnattr_destroy(&attributes);
  }
};

/// Starts the program; it goes to the background by itself, so what is waited for ends at once. Returns 0 or an errno.
int spawn(const std::filesystem::path& program, const std::filesystem::path& folder, const Fd& lock, const Fd& report,
          pid_t& pid) {
  SpawnPlan plan;
  // Out of the way of the numbers that they get in the child.
  const Fd high_lock(::fcntl(lock.get(), F_DUPFD_CLOEXEC, 10));
  const Fd high_report(::fcntl(report.get(), F_DUPFD_CLOEXEC, 10));
  if (!high_lock || !high_report) return errno;
  const auto log = (folder / agent::protocol::kAgentLog).string();
  auto* const actions = &plan.actions;
  ::posix_spawn_file_actions_addopen(actions, STDIN_FILENO, "/dev/null", O_RDONLY, 0);
  ::posix_spawn_file_actions_addopen(actions, STDOUT_FILENO, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
  ::posix_spawn_file_actions_adddup2(actions, STDOUT_FILENO, STDERR_FILENO);
  ::posix_spawn_file_actions_adddup2(actions, high_lock.get(), kLockFd);
  ::posix_spawn_file_actions_adddup2(actions, high_report.get(), kReportFd);
  ::posix_spawn_file_actions_addclosefrom_np(actions, kReportFd + 1);
  sigset_t none, all;
  ::sigemptyset(&none);
  ::sigfillset(&all);
  ::posix_spawnattr_setsigmask(&plan.attributes, &none);
  ::posix_spawnattr_setsigdefault(&plan.attributes, &all);
  ::posix_spawnattr_setflags(&plan.attributes, POSIX_SPAWN_SETSIGMASK | POSIX_SPAWN_SETSIGDEF | POSIX_SPAWN_SETSID);
  std::array<std::string, 4> arguments{program.string(), "--local", folder.string(), "--started-by-musterd"};
  std::array<char*, 5> argv{arguments[0].data(), arguments[1].data(), arguments[2].data(), arguments[3].data(),
                            nullptr};
  return ::posix_spawn(&pid, program.c_str(), actions, &plan.attributes, argv.data(), environ);
}

/// Reads until the other end closes; false at the deadline.
bool read_all(int fd, std::string& text, Clock::time_point deadline) {
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    pollfd waited{fd, POLLIN, 0};
    if (left <= 0) return false;
    if (::poll(&waited, 1, static_cast<int>(left)) <= 0) continue;
    char buffer[4096];
    const auto count = ::read(fd, buffer, sizeof buffer);
    if (count == 0) return true;
    if (count > 0) text.append(buffer, static_cast<std::size_t>(count));
  }
}

StartAnswer understand(const std::string& text) {
  using agent::protocol::StartFailure;
  const auto report = agent::protocol::parse_start_report(text);
  if (report.running) return {StartAnswer::Kind::kRunning, "", true};
  if (report.failure) {
    return {StartAnswer::Kind::kFailed, report.reason, report.failure != StartFailure::kForGood,
            report.failure == StartFailure::kNoRoom          ? ENOSPC
            : report.failure == StartFailure::kNoDescriptors ? EMFILE
                                                             : 0};
  }
  return {StartAnswer::Kind::kSilent, "its agent ended without a word", true};
}

/// Ends an agent that did not start its ranks in time: `launcher`, then the process in the background, whose number
/// is its first word. Only its end closes our pipe, so while that is open the number is its own.
void kill_agent(pid_t launcher, int words, std::string& text) {
  constexpr std::chrono::seconds kLastWords{2};
  ::kill(launcher, SIGKILL);  // not waited for yet
  if (text.empty() && read_all(words, text, Clock::now() + kLastWords)) return;
  const auto pid = static_cast<pid_t>(agent::protocol::parse_start_report(text).pid.value_or(0));
  if (pid > 1) ::kill(pid, SIGKILL);
  read_all(words, text, Clock::now() + kLastWords);
}

}  // namespace

PortPicker::PortPicker(std::uint32_t seed, Range ephemeral) : candidates_(outside(ephemeral)), next_(seed) {}

std::uint16_t PortPicker::take(const core::AttemptKey& key) {
  std::lock_guard lock(mutex_);
  const std::uint32_t count = std::uint32_t{candidates_.second} - candidates_.first + 1;
  for (std::uint32_t tried = 0; tried < count; ++tried) {
    const auto port = static_cast<std::uint16_t>(candidates_.first + next_++ % count);
    const bool used = std::ranges::any_of(of_, [&](const auto& entry) { return entry.second == port; });
    if (!used && is_free(port)) return of_[key] = port;
  }
  throw std::system_error(EADDRINUSE, std::generic_category(), "no free TCP port for MASTER_PORT");
}

PortPicker::Range PortPicker::ephemeral_range() {
  std::ifstream file("/proc/sys/net/ipv4/ip_local_port_range");
  Range range{32768, 60999};
  std::uint16_t first = 0, last = 0;
  if (file >> first >> last && first <= last) range = {first, last};
  return range;
}

std::optional<std::string> allowed_devices(const LaunchRequest& request, const OwnMachine& machine) {
  const auto share = request.share.value_or(core::MachineShare{});
  if (machine.gpus.empty() && !machine.hides_gpus && share.gpus.empty()) {
    const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
    return value == nullptr ? std::nullopt : std::optional<std::string>(value);
  }
  std::string given;
  for (const auto& gpu : share.gpus) given += (given.empty() ? "" : ",") + gpu;
  return given;
}

std::vector<Unfit> unfit_for_local(const LaunchRequest& request, const OwnMachine& machine,
                                   const std::filesystem::path& devices) {
  std::vector<Unfit> found;
  if (request.executor == "slurm") {
    found.push_back({"executor", "slurm", "want auto or local: this musterd has no Slurm",
                     "muster doctor tells why; or submit to one that has it"});
  }
  if (request.nodes != 1) {
    found.push_back({"resources.nodes", std::to_string(request.nodes),
                     "want 1: local processes run on this machine alone", "set nodes = 1, or run it on Slurm"});
  }
  auto wish = request.wish;
  wish.ranks = request.ranks_of_node();
  if (wish.chooses_gpus && wish.gpus_of_rank > 0 && machine.gpus.empty() && !base::has_gpu_device(devices)) {
    found.push_back({spec::key::kGpusOfRank, std::to_string(wish.gpus_of_rank), "want 0: this machine has no GPU",
                     "ask for none, or run it on Slurm"});
  }
  for (auto& unfit : unfit_for(machine, wish)) found.push_back(std::move(unfit));
  return found;
}

std::string check_launch(const LaunchRequest& request) {
  check_ranks(request);
  check_texts(request);
  check_working_folder(request.working_folder);
  return find_program(request);
}

StartAnswer start_agent(const std::filesystem::path& program, const std::filesystem::path& folder, Fd lock,
                        Clock::time_point deadline, const std::function<void()>& spawned) {
  const auto failed = [](const std::string& what, int error) {
    return StartAnswer{StartAnswer::Kind::kFailed, what + ": " + std::strerror(error), true,
                       base::lacks_room(error) ? error : 0};
  };
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) return failed("cannot make a pipe", errno);
  const Fd words(ends[0]);
  Fd report(ends[1]);
  pid_t pid = 0;
  const int error = spawn(program, folder, lock, report, pid);
  report.reset();
  if (error != 0) return failed("cannot start " + program.string(), error);
  if (spawned) spawned();
  std::string text;
  const bool closed = read_all(words.get(), text, deadline);
  if (!closed) kill_agent(pid, words.get(), text);
  while (::waitpid(pid, nullptr, 0) < 0 && errno == EINTR) {
  }
  if (!closed) return {StartAnswer::Kind::kSilent, "its ranks did not start in time", true};
  return understand(text);
}

}  // namespace executors::local
