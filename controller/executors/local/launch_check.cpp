#include "executors/local/launch_check.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <sstream>

#include "launch/visible_devices.h"

namespace executors::local {
namespace {

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

void check_devices(const LaunchRequest& request) {
  if (request.gpus_per_rank == 0 || request.env.contains("CUDA_VISIBLE_DEVICES")) return;
  const auto allowed = allowed_devices();
  if (!allowed) return;
  if (!launch::visible_devices(*allowed, request.gpus_per_rank, request.ranks_per_node - 1)) {
    throw Impossible("job asks for " + std::to_string(request.ranks_per_node) + " ranks with " +
                     std::to_string(request.gpus_per_rank) + " GPUs each; CUDA_VISIBLE_DEVICES=" + *allowed +
                     " of this machine's muster allows fewer");
  }
}

/// NVIDIA's, AMD's, or Windows' behind WSL.
bool has_gpu(const std::filesystem::path& devices) {
  return std::ranges::any_of(std::array{"nvidiactl", "nvidia0", "kfd", "dxg"}, [&](const char* name) {
    std::error_code ignored;
    return std::filesystem::exists(devices / name, ignored);
  });
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
  if (!not_executable.empty()) {
    throw Impossible(not_executable_text(not_executable));
  }
  throw Impossible("program " + name + " not found in PATH (" + path + "); give its full path");
}

}  // namespace

std::optional<std::string> allowed_devices() {
  const char* value = std::getenv("CUDA_VISIBLE_DEVICES");
  return value == nullptr ? std::nullopt : std::optional<std::string>(value);
}

std::vector<Unfit> unfit_for_local(const LaunchRequest& request, const std::filesystem::path& devices) {
  std::vector<Unfit> found;
  if (request.executor == "slurm") {
    found.push_back({"executor", "slurm", "want auto or local: this musterd has no Slurm",
                     "muster doctor tells why; or submit to one that has it"});
  }
  if (request.nodes != 1) {
    found.push_back({"resources.nodes", std::to_string(request.nodes),
                     "want 1: local processes run on this machine alone", "set nodes = 1, or run it on Slurm"});
  }
  if (request.gpus_per_rank > 0 && !has_gpu(devices)) {
    found.push_back({"resources.gpus_per_rank", std::to_string(request.gpus_per_rank),
                     "want 0: this machine has no GPU", "set gpus_per_rank = 0, or run it on Slurm"});
  }
  return found;
}

std::string check_launch(const LaunchRequest& request) {
  check_ranks(request);
  check_texts(request);
  check_working_folder(request.working_folder);
  check_devices(request);
  return find_program(request);
}

}  // namespace executors::local
