#include "cli/debug_run.h"

#include <arpa/inet.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <map>

#include "cli/failure.h"
#include "cli/programs.h"
#include "spec/run_file.h"

namespace cli {
namespace {

namespace fs = std::filesystem;
using Variables = std::map<std::string, std::string>;

fs::path new_folder() {
  std::error_code error;
  auto name = (fs::temp_directory_path(error) / "muster-debug-XXXXXX").native();
  if (error || mkdtemp(name.data()) == nullptr) {
    throw Failure(kUsage, "cannot make a folder below the temporary one: " + std::string(std::strerror(errno)) +
                              "; set TMPDIR to one that takes files");
  }
  return name;
}

/// For programs that want MASTER_PORT even with one rank.
std::string free_port() {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool bound = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (fd >= 0) close(fd);
  return bound ? std::to_string(ntohs(address.sin_port)) : "29500";
}

Variables variables_of(const muster::v1::JobSpec& spec, const fs::path& folder, const std::string& checkpoints) {
  Variables all;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const auto equals = text.find('=');
    if (equals == std::string_view::npos || text.starts_with("MUSTER_")) continue;
    all.emplace(text.substr(0, equals), text.substr(equals + 1));
  }
  all["RANK"] = all["LOCAL_RANK"] = all["NODE_RANK"] = "0";
  all["WORLD_SIZE"] = all["LOCAL_WORLD_SIZE"] = "1";
  all["MASTER_ADDR"] = "127.0.0.1";
  all["MASTER_PORT"] = free_port();
  // No controller knows this run.
  all["MUSTER_JOB_ID"] = "0";
  all["MUSTER_ATTEMPT"] = "1";
  all["MUSTER_CHECKPOINT_FOLDER"] = checkpoints;
  all["MUSTER_METRICS_FILE"] = folder / "metrics.jsonl";
  for (const auto& [name, value] : spec.env()) all[name] = value;
  return all;
}

std::vector<std::string> words_of(const muster::v1::JobSpec& spec, const fs::path& folder,
                                  const std::string& checkpoints) {
  if (spec.has_command()) return {spec.command().argv().begin(), spec.command().argv().end()};
  const auto worker = find_program("muster-worker");
  if (worker.empty()) {
    throw Failure(kUsage,
                  "no muster-worker beside muster or in PATH: recipes cannot train here; build it with ./dev "
                  "build");
  }
  const auto file = folder / "run.json";
  std::ofstream out(file);
  out << spec::run_file(spec, checkpoints, folder / "cache").dump(2) << "\n";
  out.close();
  if (!out) throw Failure(kUsage, "cannot write " + file.native() + "; is the disk full?");
  return {worker, "--run-file", file};
}

}  // namespace

void run_in_foreground(const muster::v1::JobSpec& spec) {
  const auto folder = new_folder();
  const auto checkpoints =
      spec.checkpoint().folder().empty() ? (folder / "checkpoints").native() : spec.checkpoint().folder();
  std::error_code error;
  fs::create_directories(checkpoints, error);
  auto words = words_of(spec, folder, checkpoints);
  std::vector<std::string> settings;
  for (const auto& [name, value] : variables_of(spec, folder, checkpoints)) settings.push_back(name + "=" + value);
  std::vector<char*> argv, envp;
  for (auto& word : words) argv.push_back(word.data());
  for (auto& setting : settings) envp.push_back(setting.data());
  argv.push_back(nullptr);
  envp.push_back(nullptr);

  std::cerr << "muster: running " << spec.name() << " here, in the foreground; its files are in " << folder.native()
            << std::endl;
  if (chdir(spec.working_folder().c_str()) != 0) {
    throw Failure(kUsage, "cannot enter working_folder " + spec.working_folder() + ": " + std::strerror(errno));
  }
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
  execvpe(argv[0], argv.data(), envp.data());
  throw Failure(kUsage, "cannot start " + words[0] + ": " + std::strerror(errno) +
                            "; is it in PATH, and may it be executed? A path counts from working_folder");
}

}  // namespace cli
