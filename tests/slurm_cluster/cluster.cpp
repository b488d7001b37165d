#include "tests/slurm_cluster/cluster.h"
#include "tests/places.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <iostream>
#include <nlohmann/json.hpp>
#include <stdexcept>

namespace slurm_cluster {
namespace {

constexpr auto kStartLimit = 90s;  // the tool's own limits, 30 s a daemon, are what usually ends a bad start
constexpr auto kEndLimit = 10s;
constexpr auto kCommandLimit = 60s;
constexpr std::size_t kLogTail = 4000;

std::string tool() {
  return ::test::source_folder() + "/tools/cluster";
}

std::string text(std::chrono::seconds value) {
  return std::to_string(value.count());
}

std::vector<std::string> start_command(const Options& options, const std::string& folder) {
  std::vector<std::string> command = {"/usr/bin/env",
                                      "python3",
                                      "-B",
                                      tool(),
                                      "start",
                                      "--folder",
                                      folder,
                                      "--foreground",
                                      "--die-with-parent",
                                      "--remove-folder",
                                      "--nodes",
                                      std::to_string(options.nodes),
                                      "--cpus",
                                      std::to_string(options.cpus),
                                      "--grace",
                                      text(options.grace),
                                      "--slurmd-timeout",
                                      text(options.slurmd_timeout),
                                      "--kill-wait",
                                      text(options.kill_wait),
                                      "--min-job-age",
                                      text(options.min_job_age),
                                      "--cred-expire",
                                      text(options.cred_expire),
                                      "--max-array-size",
                                      std::to_string(options.max_array_size),
                                      "--requeue-exit",
                                      options.requeue_exit ? "on" : "off",
                                      "--network",
                                      options.separate_network ? "separate" : "shared"};
  if (options.unresolvable_names) command.emplace_back("--unresolvable-names");
  if (options.accounting) command.emplace_back("--accounting");
  if (options.memory_limits) command.emplace_back("--memory-limits");
  for (const auto& line : options.conf) command.insert(command.end(), {"--conf", line});
  return command;
}

/// The child's side of fork: nothing but system calls.
[[noreturn]] void become(char* const* argv, int in, int out) {
  setsid();
  dup2(in, 0);
  dup2(out, 1);
  syscall(SYS_close_range, 3U, ~0U, 0U);
  execv(argv[0], argv);
  _exit(127);
}

struct Pipe {
  Pipe() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) throw std::runtime_error("no pipe for the cluster");
    read = ends[0];
    write = ends[1];
  }
  int read = -1;
  int write = -1;
};

std::string tail(const std::filesystem::path& file) {
  const auto all = test::read_file(file);
  return all.size() > kLogTail ? all.substr(all.size() - kLogTail) : all;
}

}  // namespace

Cluster::Cluster(const Options& options) {
  std::string name = (std::filesystem::temp_directory_path() / "muster-slurm-XXXXXX").string();
  if (mkdtemp(name.data()) == nullptr)
    throw std::runtime_error("no folder for the cluster: mkdtemp(" + name + ") failed");
  folder_ = name;
  try {
    start(options);
  } catch (...) {
    end();
    throw;
  }
}

Cluster::~Cluster() {
  if (testing::Test::HasFailure()) std::cerr << "--- end of slurmctld.log\n" << tail(folder_ / "log" / "slurmctld.log");
  end();
}

void Cluster::start(const Options& options) {
  auto command = start_command(options, folder_.string());
  std::vector<char*> argv;
  for (auto& argument : command) argv.push_back(argument.data());
  argv.push_back(nullptr);
  const Pipe lifeline;
  const Pipe report;
  keeper_ = fork();
  if (keeper_ == 0) become(argv.data(), lifeline.read, report.write);
  lifeline_ = lifeline.write;
  close(lifeline.read);
  close(report.write);
  try {
    if (keeper_ < 0) throw std::runtime_error("no process for the cluster: fork failed");
    read_report(report.read, kStartLimit);
  } catch (...) {
    close(report.read);
    throw;
  }
  close(report.read);
}

void Cluster::read_report(int from, std::chrono::milliseconds limit) {
  const auto deadline = test::Clock::now() + limit;
  std::string line;
  while (line.find('\n') == std::string::npos) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - test::Clock::now());
    pollfd wait{from, POLLIN, 0};
    if (left <= 0ms || poll(&wait, 1, static_cast<int>(left.count())) == 0) {
      throw std::runtime_error("the Slurm cluster in " + folder_.string() + " did not say within 90 s that it is up");
    }
    char part[4096];
    const auto got = read(from, part, sizeof part);
    if (got <= 0) throw std::runtime_error("tools/cluster ended without a word; is python3 installed?");
    line.append(part, static_cast<std::size_t>(got));
  }
  const auto described = nlohmann::json::parse(line);
  if (described.contains("error"))
    throw std::runtime_error("no Slurm cluster: " + described["error"].get<std::string>());
  host_address_ = described["host_address"];
  has_namespaces_ = described["namespaces"];
  guard_ = described["guard"]["pid"];
}

void Cluster::end() {
  if (lifeline_ >= 0) close(lifeline_);
  lifeline_ = -1;
  if (keeper_ > 0 && !test::eventually([&] { return waitpid(keeper_, nullptr, WNOHANG) != 0; }, kEndLimit)) {
    kill(keeper_, SIGKILL);  // the kernel then ends the guard, and with it the rest
    waitpid(keeper_, nullptr, 0);
  }
  keeper_ = -1;
  std::error_code ignored;
  std::filesystem::remove_all(folder_, ignored);
}

test::Finished Cluster::run(const std::vector<std::string>& command, std::chrono::milliseconds limit) const {
  std::vector<std::string> argv = {"/usr/bin/env"};
  argv.insert(argv.end(), command.begin(), command.end());
  return test::run(argv, env(), limit);
}

std::string Cluster::ask(const std::vector<std::string>& command) const {
  std::vector<std::string> argv = {"python3", "-B", tool()};
  argv.insert(argv.end(), command.begin(), command.end());
  argv.insert(argv.end(), {"--json", "--folder", folder_.string()});
  const auto done = run(argv, kCommandLimit);
  if (done.exit != 0) throw std::runtime_error("cluster " + command.front() + ": " + done.out + done.err);
  return done.out;
}

void Cluster::power_cut(const std::string& node) const {
  ask({"power-cut", node});
}

void Cluster::power_on(const std::string& node) const {
  ask({"power-on", node});
}

void Cluster::cut_network(const std::string& node) const {
  ask({"cut-network", node});
}

void Cluster::mend_network(const std::string& node) const {
  ask({"mend-network", node});
}

void Cluster::kill_ctld() const {
  ask({"kill-ctld"});
}

void Cluster::stop_ctld() const {
  ask({"stop-ctld"});
}

void Cluster::start_ctld() const {
  ask({"start-ctld"});
}

std::vector<pid_t> Cluster::ask_pids(const std::string& command, const std::string& node,
                                     const std::string& job) const {
  return nlohmann::json::parse(ask({command, node, job}))["pids"].get<std::vector<pid_t>>();
}

std::vector<pid_t> Cluster::stepd_pids(const std::string& node, const std::string& job) const {
  return ask_pids("stepd-pids", node, job);
}

std::vector<pid_t> Cluster::kill_stepd(const std::string& node, const std::string& job) const {
  return ask_pids("kill-stepd", node, job);
}

}  // namespace slurm_cluster
