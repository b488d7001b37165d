#include "agent/stacks/processes.h"

#include <algorithm>
#include <charconv>
#include <cstdint>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <sstream>
#include <system_error>

#include "agent/protocol/stacks.h"
#include "base/durable_file.h"

namespace agent::stacks {
namespace {

namespace fs = std::filesystem;

fs::path proc(pid_t pid, const char* name) {
  return fs::path("/proc") / std::to_string(pid) / name;
}

/// The number that the process has for itself, which differs in a container, and the signals that it has handlers for.
struct Status {
  std::string own_pid;
  std::uint64_t caught = 0;
};

Status status_of(pid_t pid) {
  Status out;
  std::ifstream file(proc(pid, "status"));
  for (std::string line; std::getline(file, line);) {
    std::istringstream words(line);
    std::string name, word;
    words >> name;
    if (name == "NSpid:") {
      while (words >> word) out.own_pid = word;
    } else if (name == "SigCgt:" && words >> word) {
      std::from_chars(word.data(), word.data() + word.size(), out.caught, 16);
    }
  }
  if (out.own_pid.empty()) out.own_pid = std::to_string(pid);
  return out;
}

}  // namespace

std::vector<base::ProcessStat> with_descendants(pid_t pid, const std::vector<base::ProcessStat>& all) {
  std::vector<base::ProcessStat> found;
  const auto first = std::ranges::find(all, pid, &base::ProcessStat::pid);
  if (first == all.end() || first->is_dead()) return found;
  found.push_back(*first);
  for (std::size_t i = 0; i < found.size() && found.size() < kMostProcesses; ++i) {
    std::ranges::copy_if(all, std::back_inserter(found), [parent = found[i].pid](const base::ProcessStat& process) {
      return process.parent == parent && !process.is_dead();
    });
  }
  if (found.size() > kMostProcesses) found.resize(kMostProcesses);
  return found;
}

std::string read_proc(const fs::path& path, std::size_t most) {
  try {
    return base::read_small_file(path, most);
  } catch (const std::system_error&) {
    return {};
  }
}

std::string command_of(pid_t pid) {
  constexpr std::size_t kMost = 200;
  auto out = read_proc(proc(pid, "cmdline"), kMost);
  while (!out.empty() && out.back() == '\0') out.pop_back();
  for (auto& each : out) {
    // Section heads are lines.
    if (static_cast<unsigned char>(each) < ' ') each = ' ';
  }
  if (!out.empty()) return out;
  std::ifstream name(proc(pid, "comm"));
  std::getline(name, out);
  return out.empty() ? "a process" : out;
}

bool is_python(pid_t pid) {
  std::error_code error;
  return fs::read_symlink(proc(pid, "exe"), error).filename().string().starts_with("python");
}

std::optional<std::string> stack_memory(pid_t pid) {
  const auto status = status_of(pid);
  if ((status.caught >> (protocol::kStackSignal - 1) & 1) == 0) return std::nullopt;
  const auto wanted = std::string("/memfd:") + protocol::kStackMemory + status.own_pid;
  std::error_code error;
  for (fs::directory_iterator entry(proc(pid, "fd"), error), end; !error && entry != end; entry.increment(error)) {
    std::error_code unreadable;
    const auto target = fs::read_symlink(entry->path(), unreadable).string();
    if (target == wanted || target == wanted + " (deleted)") return entry->path().string();
  }
  return std::nullopt;
}

std::optional<pid_t> stack_thread(pid_t pid) {
  std::error_code error;
  for (fs::directory_iterator entry(proc(pid, "task"), error), end; !error && entry != end; entry.increment(error)) {
    std::string name;
    std::getline(std::ifstream(entry->path() / "comm"), name);
    if (name != protocol::kStackThread) continue;
    const auto number = entry->path().filename().string();
    pid_t thread = 0;
    if (std::from_chars(number.data(), number.data() + number.size(), thread).ec == std::errc()) return thread;
  }
  return std::nullopt;
}

}  // namespace agent::stacks
