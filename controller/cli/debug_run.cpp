#include "cli/debug_run.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <nlohmann/json.hpp>

#include "beside/rank_files.h"
#include "cli/debug_ranks.h"
#include "cli/failure.h"
#include "cli/programs.h"
#include "contract/variables.h"
#include "jobfile/spec.h"
#include "launch/login_environment.h"
#include "launch/rank_variables.h"
#include "launch/submitter.h"
#include "launch/visible_devices.h"
#include "os/host_name.h"

namespace cli {
namespace {

namespace fs = std::filesystem;
namespace names = contract::variable;

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
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const bool bound = fd >= 0 && bind(fd, reinterpret_cast<sockaddr*>(&address), size) == 0 &&
                     getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0;
  if (fd >= 0) close(fd);
  return bound ? std::to_string(ntohs(address.sin_port)) : "29500";
}

std::vector<std::string> words_of(const muster::v1::JobSpec& spec, const fs::path& folder,
                                  const std::string& checkpoints) {
  if (spec.has_command()) return {spec.command().argv().begin(), spec.command().argv().end()};
  const auto worker = find_program("muster-worker");
  if (worker.empty()) {
    throw Failure(
        kUsage,
        "there is no muster-worker beside muster or in PATH, so recipes cannot train here; build it with ./dev "
        "build");
  }
  const auto file = folder / "run.json";
  std::ofstream out(file);
  out << jobfile::run_file(spec, checkpoints, folder / "cache").dump(2) << "\n";
  out.close();
  if (!out) throw Failure(kUsage, "cannot write " + file.native() + "; is the disk full?");
  return {worker, "--run-file", file};
}

/// What all ranks of a debug run share.
struct DebugPlace {
  std::filesystem::path folder;  // the attempt's folder
  std::string checkpoints;
  std::string master_port;
};

/// A rank's place. All nodes of the job are this machine.
launch::RankPlace place_of(const muster::v1::Resources& resources, std::uint32_t rank) {
  launch::RankPlace place{.rank = rank, .world_size = resources.nodes() * resources.ranks_per_node()};
  place.local_world_size = resources.ranks_per_node();
  place.local_rank = rank % place.local_world_size;
  place.node_rank = rank / place.local_world_size;
  place.nodes = resources.nodes();
  const auto host = os::host_name();
  place.node_names.assign(place.nodes, host.empty() ? "localhost" : host);
  return place;
}

/// Adds TERM, and the GPUs that this shell may use.
void add_of_this_shell(const muster::v1::Resources& resources, std::uint32_t rank, launch::Environment& to) {
  const auto own = launch::own_environment();
  for (const auto* name : {"TERM", names::kVisibleDevices}) {
    if (const auto found = own.find(name); found != own.end()) to[name] = found->second;
  }
  if (resources.gpus_per_rank() == 0) return;
  auto& devices = to[names::kVisibleDevices];
  devices = launch::visible_devices(devices, resources.gpus_per_rank(), rank).value_or(devices);
}

/// A rank's environment, as in an attempt; see [Note: a rank's environment] in launch/environment.h. A rank also gets
/// TERM, since it uses this terminal. muster-worker also gets a file for its metrics, since there is no controller.
launch::Environment debug_environment(const muster::v1::JobSpec& spec, const DebugPlace& place, std::uint32_t rank) {
  auto all = launch::login_environment();
  for (const auto& [name, value] : spec.submitted_env()) all[name] = value;
  for (auto& [name, value] : launch::rank_variables(place_of(spec.resources(), rank))) all[name] = value;
  const auto files = beside::file_variables(beside::rank_files(place.folder / "logs", rank));
  for (const auto& [name, value] : files) all[name] = value;
  all[names::kMasterAddress] = "127.0.0.1";
  all[names::kMasterPort] = place.master_port;
  add_of_this_shell(spec.resources(), rank, all);
  if (spec.has_command()) {
    for (auto& [name, value] : launch::torchelastic_variables(0, 1, spec.requeue().max_failed())) all[name] = value;
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
    const auto files = beside::rank_files(place.folder / "logs", rank);
    ranks.push_back({words, debug_environment(spec, place, rank), spec.working_folder(), files.stop});
  }
  tell_start(spec, ranks.size(), own.path());
  return DebugRanks(ranks).wait(std::chrono::milliseconds(spec.resources().stop_grace_ms()));
}

}  // namespace cli
