#include "cli/debug_run.h"

#include <arpa/inet.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cstring>
#include <filesystem>
#include <fstream>
#include <iostream>

#include "beside/rank_files.h"
#include "cli/debug_environment.h"
#include "cli/debug_ranks.h"
#include "cli/failure.h"
#include "cli/programs.h"
#include "jobfile/run_file.h"
#include "jobfile/spec.h"

namespace cli {
namespace {

namespace fs = std::filesystem;

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
