#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <nlohmann/json.hpp>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>

#include "agent/environment/rank_variables.h"
#include "agent/watch/agent_files.h"
#include "agent/watch/report.h"
#include "base/command.h"
#include "base/fd.h"
#include "base/host_name.h"
#include "cli/submit.h"
#include "controller/core/core_text.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/run_file.h"
#include "spec/jobfile/spec.h"
#include "spec/variables.h"

namespace cli {
namespace {

namespace fs = std::filesystem;
namespace names = spec::variable;

/// More would hide the rest of the line.
constexpr std::size_t kMostValues = 8;

struct Reported {
  std::uint64_t steps = 0;
  std::optional<std::int64_t> newest_step, total_steps;
  std::map<std::string, double> values;  // the newest of each series
  std::optional<agent::watch::ReportedCheckpoint> checkpoint;
  std::optional<agent::watch::ReportedError> error;

  void take(const agent::watch::Report& report) {
    if (report.total_steps) total_steps = report.total_steps;
    if (report.checkpoint) checkpoint = report.checkpoint;
    if (report.step) {
      ++steps;
      newest_step = report.step->step;
      error.reset();  // the program went on after it
      for (const auto& [name, value] : report.step->values) values[name] = value;
    }
    if (report.error) error = report.error;
  }
};

std::string steps_line(const Reported& all) {
  std::ostringstream out;
  out << "reported " << core::count_text(all.steps, "step") << ", the newest " << *all.newest_step;
  if (all.total_steps) out << " of " << *all.total_steps;
  std::size_t shown = 0;
  for (const auto& [name, value] : all.values) {
    if (shown++ == kMostValues) break;
    out << (shown == 1 ? ": " : ", ") << name << " " << value;
  }
  if (all.values.size() > kMostValues) out << " and " << all.values.size() - kMostValues << " more";
  return out.str();
}

/// News in the report file of a rank that has ended, for people who try a program with executor = "debug": steps,
/// newest values, checkpoint, error, and what of it cannot be read. One line for each; empty: there is nothing.
std::string what_was_reported(const std::filesystem::path& report_file, std::uint32_t rank) {
  agent::watch::ReportTail tail(report_file);
  Reported all;
  for (bool more = true; more;) {
    const auto found = tail.read(true);
    more = found.more;
    for (const auto& report : found.reports) all.take(report);
  }
  const auto line = [&](const std::string& text) { return "muster: rank " + std::to_string(rank) + " " + text + "\n"; };
  std::string out;
  if (all.steps > 0) out += line(steps_line(all));
  if (all.checkpoint) {
    out += line("reported a checkpoint of step " + std::to_string(all.checkpoint->step) + ": " + all.checkpoint->path);
  }
  if (all.error) out += line("reported an error: " + core::error_text(all.error->type, all.error->message));
  if (tail.bad_lines() > 0) {
    out += line("wrote " + core::count_text(tail.bad_lines(), "line") +
                " into its report file that cannot be read, or only in part; the first: " + *tail.first_complaint());
  }
  return out;
}

using DebugClock = std::chrono::steady_clock;

constexpr std::chrono::milliseconds kLook{20};

/// Set by SIGTERM and SIGHUP. The ranks are then asked to leave, and this process stays to clean up.
std::atomic<bool> told_to_leave{false};

void note_leave(int) {
  told_to_leave = true;
}

/// How to start one rank.
struct DebugRank {
  std::vector<std::string> words;
  spec::Environment environment;
  std::string working_folder;
  fs::path stop_file;  // the value of MUSTER_STOP
};

/// Why a rank could not be started.
struct StartProblem {
  enum class Step { kEnterFolder, kStartProgram };
  Step step = Step::kStartProgram;
  int error = 0;
};

std::vector<char*> pointers_to(const std::vector<std::string>& texts) {
  std::vector<char*> all;
  for (const auto& text : texts) all.push_back(const_cast<char*>(text.c_str()));
  all.push_back(nullptr);
  return all;
}

/// Data for a child after the fork; the child may only make system calls, since this process has several threads.
struct Wanted {
  const char* file;
  std::vector<char*> argv, envp;
  const char* working_folder;
  int output;  // -1: the output of this process
  int told;
  pid_t parent;
};

[[noreturn]] void become_rank(const Wanted& wanted) {
  ::prctl(PR_SET_PDEATHSIG, SIGKILL);
  if (::getppid() != wanted.parent) ::_exit(127);
  for (const int number : {SIGTERM, SIGHUP}) ::signal(number, SIG_DFL);
  sigset_t none;
  ::sigemptyset(&none);
  ::sigprocmask(SIG_SETMASK, &none, nullptr);
  if (wanted.output >= 0) {
    const int null = ::open("/dev/null", O_RDONLY | O_CLOEXEC);
    ::dup2(null, STDIN_FILENO);
    ::dup2(wanted.output, STDOUT_FILENO);
    ::dup2(wanted.output, STDERR_FILENO);
  }
  StartProblem problem{StartProblem::Step::kEnterFolder};
  if (::chdir(wanted.working_folder) == 0) {
    problem.step = StartProblem::Step::kStartProgram;
    ::execve(wanted.file, wanted.argv.data(), wanted.envp.data());
  }
  problem.error = errno;
  [[maybe_unused]] const auto written = ::write(wanted.told, &problem, sizeof problem);
  ::_exit(127);
}

/// The program's file, found in the rank's PATH as a shell does; empty: there is none.
std::string program_of(const DebugRank& rank) {
  const auto& name = rank.words.front();
  const auto path = rank.environment.find("PATH");
  if (name.find('/') != std::string::npos || path == rank.environment.end()) return name;
  return base::find_in(path->second, name).value_or("");
}

[[noreturn]] void fail_to_start(const DebugRank& rank, const StartProblem& problem) {
  const std::string why = std::strerror(problem.error);
  if (problem.step == StartProblem::Step::kEnterFolder) {
    throw Failure(kUsage, "cannot enter working_folder " + rank.working_folder + ": " + why);
  }
  throw Failure(kUsage, "cannot start " + rank.words[0] + ": " + why +
                            "; is it in PATH, and may it be executed? A relative path starts at working_folder");
}

struct Pipe {
  base::Fd read, write;
};

Pipe make_pipe() {
  int ends[2];
  if (::pipe2(ends, O_CLOEXEC) != 0) throw Failure(kUsage, std::string("cannot make a pipe: ") + std::strerror(errno));
  return {base::Fd(ends[0]), base::Fd(ends[1])};
}

/// The processes of a debug run, in the foreground of this terminal.
class DebugRanks {
 public:
  /// Starts all ranks. If one cannot be started, ends the others and throws a Failure.
  explicit DebugRanks(const std::vector<DebugRank>& ranks) {
    std::cout << std::flush;
    Interrupts::instance().leave_to_children();
    for (const int number : {SIGTERM, SIGHUP}) ::signal(number, note_leave);
    try {
      for (const auto& rank : ranks) start(rank);
    } catch (...) {
      signal_all(SIGKILL);
      while (::waitpid(-1, nullptr, 0) > 0) {
      }
      throw;
    }
  }

  /// Waits until all ranks have ended. Returns muster's exit code.
  int wait(std::chrono::milliseconds stop_grace) {
    std::optional<DebugClock::time_point> kill_at;
    while (any_left()) {
      read_outputs(kLook);
      take_ends();
      if ((first_failure_ || told_to_leave) && !kill_at) {
        ask_to_leave(stop_grace);
        kill_at = DebugClock::now() + stop_grace;
      }
      if (kill_at && DebugClock::now() >= *kill_at) signal_all(SIGKILL);
    }
    // Read the rest of the pipes, but do not wait for processes that a rank has left behind.
    while (read_outputs(std::chrono::milliseconds(0))) {
    }
    return first_failure_.value_or(0);
  }

 private:
  struct Rank {
    pid_t pid;  // -1: the rank has ended
    base::Fd output;
    fs::path stop_file;
    std::string line = {};  // the unfinished line at the end of the output
  };

  void start(const DebugRank& rank) {
    auto told = make_pipe();
    auto output = ranks_.empty() ? Pipe() : make_pipe();
    const auto program = program_of(rank);
    if (program.empty()) fail_to_start(rank, {.error = ENOENT});
    std::vector<std::string> settings;
    for (const auto& [name, value] : rank.environment) settings.push_back(name + "=" + value);
    const Wanted wanted{program.c_str(),
                        pointers_to(rank.words),
                        pointers_to(settings),
                        rank.working_folder.c_str(),
                        output.write.get(),
                        told.write.get(),
                        ::getpid()};
    const pid_t pid = ::fork();
    if (pid == 0) become_rank(wanted);
    StartProblem problem{.error = errno};
    told.write.reset();
    ranks_.push_back({pid, std::move(output.read), rank.stop_file});
    const bool failed = pid < 0 || ::read(told.read.get(), &problem, sizeof problem) == sizeof problem;
    if (failed) fail_to_start(rank, problem);
  }

  void signal_all(int number) {
    for (const auto& rank : ranks_) {
      if (rank.pid > 1) ::kill(rank.pid, number);
    }
  }

  // The stop file with the reason is written before the signal is sent, as in an attempt.
  void ask_to_leave(std::chrono::milliseconds stop_grace) {
    const auto at = std::chrono::system_clock::now() + stop_grace;
    const auto deadline = std::chrono::duration_cast<std::chrono::milliseconds>(at.time_since_epoch());
    const bool failed = first_failure_.has_value();
    for (const auto& rank : ranks_) {
      if (rank.pid <= 0) continue;
      // Without the stop file the program would take the signal for a preemption, and save.
      agent::watch::write_stop_file(rank.stop_file, {failed ? "peer_failed" : "cancelled", !failed, deadline.count()});
    }
    signal_all(SIGTERM);
  }

  bool any_left() const {
    return std::ranges::any_of(ranks_, [](const Rank& rank) { return rank.pid > 0; });
  }

  void take_ends() {
    for (std::size_t number = 0; number < ranks_.size(); ++number) {
      auto& rank = ranks_[number];
      int status = 0;
      if (rank.pid <= 0 || ::waitpid(rank.pid, &status, WNOHANG) != rank.pid) continue;
      rank.pid = -1;
      const int code = WIFSIGNALED(status) ? 128 + WTERMSIG(status) : WEXITSTATUS(status);
      if (code == 0 || first_failure_) continue;
      first_failure_ = code;
      std::cerr << "muster: rank " << number
                << (WIFSIGNALED(status) ? " was ended by signal " + std::to_string(WTERMSIG(status))
                                        : " exited with " + std::to_string(code))
                << (any_left() ? "; asking the others to leave" : "") << std::endl;
    }
  }

  void take(Rank& rank, std::size_t number) {
    char buffer[4096];
    const auto count = ::read(rank.output.get(), buffer, sizeof buffer);
    if (count < 0 && errno == EINTR) return;
    if (count > 0) rank.line.append(buffer, static_cast<std::size_t>(count));
    if (count <= 0) {
      rank.output.reset();
      if (!rank.line.empty()) rank.line += '\n';
    }
    const auto name = "[rank " + std::to_string(number) + "] ";
    std::string lines;
    for (auto end = rank.line.find('\n'); end != std::string::npos; end = rank.line.find('\n')) {
      // muster-worker begins its lines with the rank.
      if (!rank.line.starts_with(name)) lines += name;
      lines += rank.line.substr(0, end + 1);
      rank.line.erase(0, end + 1);
    }
    std::cerr << lines << std::flush;
  }

  /// Returns false if no output came in this time.
  bool read_outputs(std::chrono::milliseconds patience) {
    std::vector<pollfd> waits;  // poll() ignores the descriptor -1
    for (const auto& rank : ranks_) waits.push_back({rank.output.get(), POLLIN, 0});
    if (::poll(waits.data(), waits.size(), static_cast<int>(patience.count())) <= 0) return false;
    for (std::size_t number = 0; number < waits.size(); ++number) {
      if (waits[number].revents != 0) take(ranks_[number], number);
    }
    return true;
  }

  std::vector<Rank> ranks_;
  std::optional<int> first_failure_;  // the exit code of the first rank that failed
};

/// A folder for this run. It is removed at the end with its contents.
class DebugFolder {
 public:
  DebugFolder() {
    std::error_code error;
    auto name = (fs::temp_directory_path(error) / "muster-debug-XXXXXX").native();
    if (error || mkdtemp(name.data()) == nullptr) {
      throw Failure(kUsage, "cannot create a temporary folder: " + std::string(std::strerror(errno)) +
                                "; set TMPDIR to a folder that can be written");
    }
    path_ = name;
  }
  ~DebugFolder() {
    std::error_code ignored;
    fs::remove_all(path_, ignored);
  }
  DebugFolder(const DebugFolder&) = delete;
  DebugFolder& operator=(const DebugFolder&) = delete;
  const fs::path& path() const { return path_; }

 private:
  fs::path path_;
};

/// A port on which no process listens now.
std::string free_port() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  auto* const any = reinterpret_cast<sockaddr*>(&address);
  const base::Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  const bool bound = fd && bind(fd.get(), any, size) == 0 && getsockname(fd.get(), any, &size) == 0;
  return bound ? std::to_string(ntohs(address.sin_port)) : "29500";
}

std::vector<std::string> words_of(const muster::v1::JobSpec& spec, const fs::path& folder,
                                  const std::string& checkpoints) {
  if (spec.has_command()) return {spec.command().argv().begin(), spec.command().argv().end()};
  const auto worker = must_find("muster-worker", "so recipes cannot train here");
  const auto file = folder / "run.json";
  std::ofstream out(file);
  out << jobfile::run_file(spec, checkpoints, folder / "cache").dump(2) << "\n";
  out.close();
  if (!out) throw Failure(kUsage, "cannot write " + file.native() + "; is the disk full?");
  return {worker, "--run-file", file};
}

/// The paths and the port that all ranks of a debug run share.
struct DebugPlace {
  std::filesystem::path folder;  // the attempt's folder
  std::string checkpoints;
  std::string master_port;
};

/// A rank's place. All nodes of the job are this machine.
agent::environment::RankPlace place_of(const muster::v1::Resources& resources, std::uint32_t rank) {
  agent::environment::RankPlace place{.rank = rank, .world_size = resources.nodes() * resources.ranks_per_node()};
  place.local_world_size = resources.ranks_per_node();
  place.local_rank = rank % place.local_world_size;
  place.node_rank = rank / place.local_world_size;
  place.nodes = resources.nodes();
  const auto host = base::host_name();
  place.node_names.assign(place.nodes, host.empty() ? "localhost" : host);
  return place;
}

/// Adds TERM, and the GPUs that this shell may use.
void add_of_this_shell(std::uint32_t gpus, std::uint32_t rank, spec::Environment& to) {
  const auto own = spec::own_environment();
  for (const auto* name : {"TERM", names::kVisibleDevices}) {
    if (const auto found = own.find(name); found != own.end()) to[name] = found->second;
  }
  if (gpus == 0) return;
  auto& devices = to[names::kVisibleDevices];
  devices = agent::environment::visible_devices(devices, gpus, rank).value_or(devices);
}

/// A rank's environment, as in an attempt; see [Note: a rank's environment] in spec/variables.h. A rank
/// also gets TERM, since it uses this terminal. muster-worker also gets a file for its metrics, since there is no
/// controller.
spec::Environment debug_environment(const muster::v1::JobSpec& spec, const DebugPlace& place, std::uint32_t rank) {
  auto all = agent::environment::login_environment();
  for (const auto& [name, value] : spec.submitted_env()) all[name] = value;
  const bool own = spec.launcher() == "own";
  const auto where = place_of(spec.resources(), rank);
  for (auto& [name, value] :
       own ? agent::environment::own_launcher_variables(where) : agent::environment::rank_variables(where)) {
    all[name] = value;
  }
  const auto files = agent::watch::file_variables(agent::watch::rank_files(place.folder / "logs", rank));
  for (const auto& [name, value] : files) all[name] = value;
  for (auto& [name, value] : agent::environment::meeting_variables("127.0.0.1", place.master_port)) all[name] = value;
  add_of_this_shell(jobfile::gpus_of_rank(spec), rank, all);
  if (spec.has_command() && !own) {
    for (auto& [name, value] : agent::environment::torchelastic_variables(0, 1, spec.requeue().max_failed()))
      all[name] = value;
  }
  for (const auto& [name, value] : spec.env()) all[name] = value;
  // There is no controller, so there is no job id.
  all[names::kJobId] = "0";
  all[names::kAttempt] = "1";
  all[names::kAttemptFolder] = place.folder;
  all[names::kCheckpointFolder] = place.checkpoints;
  if (spec.has_recipe()) {
    all[names::kRunFile] = place.folder / "run.json";
    all[names::kMetricsFile] = place.folder / ("metrics.rank" + std::to_string(rank) + ".jsonl");
  }
  return all;
}

void tell_start(const muster::v1::JobSpec& spec, std::uint64_t ranks, const fs::path& folder) {
  std::cerr << "muster: running " << spec.name() << " here, in the foreground";
  if (ranks > 1) std::cerr << ": " << ranks << " ranks, of which rank 0 has this terminal";
  std::cerr << ". Its files are in " << folder.native() << " until it ends";
  if (!spec.checkpoint().folder().empty()) std::cerr << "; checkpoints stay in " << spec.checkpoint().folder();
  std::cerr << std::endl;
}

}  // namespace

int run_in_foreground(const muster::v1::JobSpec& given) {
  auto spec = given;
  jobfile::fill_defaults(spec);
  const DebugFolder own;
  DebugPlace place{own.path() / "attempt-1", spec.checkpoint().folder(), free_port()};
  if (place.checkpoints.empty()) place.checkpoints = own.path() / "checkpoints";
  std::error_code error;
  fs::create_directories(place.folder / "logs", error);
  fs::create_directories(place.checkpoints, error);
  const auto words = words_of(spec, place.folder, place.checkpoints);
  std::vector<DebugRank> ranks;
  for (std::uint32_t rank = 0; rank < jobfile::world_size(spec); ++rank) {
    const auto files = agent::watch::rank_files(place.folder / "logs", rank);
    ranks.push_back({words, debug_environment(spec, place, rank), spec.working_folder(), files.stop});
  }
  tell_start(spec, ranks.size(), own.path());
  if (spec.has_report()) {
    std::cerr << "muster: nobody reads here what [report] names; submit the job to an executor to try it" << std::endl;
  }
  const int exit = DebugRanks(ranks).wait(std::chrono::milliseconds(spec.resources().stop_grace_ms()));
  for (std::uint32_t rank = 0; rank < ranks.size(); ++rank) {
    std::cerr << what_was_reported(agent::watch::rank_files(place.folder / "logs", rank).report, rank);
  }
  return exit;
}

}  // namespace cli
