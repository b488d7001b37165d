#include "controller/common/ready_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <nlohmann/json.hpp>
#include <sstream>
#include <string_view>

#include "agent/protocol/controller_place.h"
#include "base/durable_file.h"
#include "base/fd.h"
#include "base/host_name.h"
#include "base/numbers.h"
#include "base/patience.h"
#include "base/process_table.h"
#include "controller/common/data_folder.h"

namespace common {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMostBytes = 4096;
constexpr std::size_t kMostMountBytes = std::size_t{1} << 20;

std::string text_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

template <typename Number>
Number number_of(const nlohmann::json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_number_integer() ? found->get<Number>() : Number{0};
}

std::string small_text(const fs::path& file, std::size_t most) {
  try {
    return base::read_small_file(file, most);
  } catch (const std::exception&) {
    return {};
  }
}

/// nullopt: the file belongs to somebody else, and cannot be asked.
std::optional<bool> is_locked(const fs::path& file) {
  const base::Fd lock(::open(file.c_str(), O_RDONLY | O_CLOEXEC));
  if (!lock && (errno == EACCES || errno == EPERM)) return std::nullopt;
  return lock && ::flock(lock.get(), LOCK_SH | LOCK_NB) != 0 && errno == EWOULDBLOCK;
}

std::string process_text(std::int64_t pid) {
  return pid > 0 ? "process " + std::to_string(pid) : "another process";
}

/// True if one of the words between commas is this one.
bool has_option(std::string_view options, std::string_view wanted) {
  while (!options.empty()) {
    const auto end = options.find(',');
    if (options.substr(0, end) == wanted) return true;
    if (end == std::string_view::npos) break;
    options.remove_prefix(end + 1);
  }
  return false;
}

}  // namespace

bool ReadyFile::is_of_this_host() const {
  return host.empty() || host == base::host_name();
}

bool ReadyFile::is_of_this_process() const {
  return pid == ::getpid() && is_alive();
}

bool ReadyFile::is_alive() const {
  if (pid <= 0 || !is_of_this_host()) return false;
  if (start_time == 0) return ::kill(static_cast<pid_t>(pid), 0) == 0 || errno != ESRCH;
  const auto process = base::read_stat(pid);
  return process && !process->is_dead() && process->start_time == start_time && boot == base::boot_id();
}

std::optional<ReadyFile> read_ready_file(const fs::path& data_folder) {
  ReadyFile ready;
  ready.file = DataFolder(data_folder).ready_file();
  const auto object = nlohmann::json::parse(small_text(ready.file, kMostBytes), nullptr, false);
  if (!object.is_object()) return std::nullopt;
  ready.pid = number_of<std::int64_t>(object, "pid");
  ready.start_time = number_of<std::uint64_t>(object, "start_time");
  ready.boot = text_of(object, "boot");
  ready.host = text_of(object, "host");
  ready.grpc = text_of(object, "grpc");
  ready.http = text_of(object, "http");
  ready.advertised = text_of(object, agent::protocol::kAdvertised);
  ready.slurm_job = text_of(object, "slurm_job");
  if (ready.grpc.empty()) return std::nullopt;
  return ready;
}

OwnReadyFile::OwnReadyFile(const fs::path& data_folder, const OwnPlace& place) : data_folder_(data_folder) {
  const auto self = base::read_stat(::getpid());
  nlohmann::ordered_json text = {{"pid", ::getpid()},
                                 {"start_time", self ? self->start_time : 0},
                                 {"boot", base::boot_id()},
                                 {"host", base::host_name()},
                                 {"grpc", place.grpc},
                                 {"http", place.http},
                                 {agent::protocol::kAdvertised, place.advertised},
                                 {"version", place.version}};
  if (!place.slurm_job.empty()) text["slurm_job"] = place.slurm_job;
  base::write_file_durably(DataFolder(data_folder_).ready_file(), text.dump() + "\n");
}

OwnReadyFile::~OwnReadyFile() {
  std::error_code ignored;
  const auto ready = read_ready_file(data_folder_);
  if (!ready || ready->is_of_this_process()) fs::remove(DataFolder(data_folder_).ready_file(), ignored);
}

bool is_lock_seen_everywhere(const fs::path& folder, const std::string& mountinfo) {
  // File systems that a machine has for itself. On any other one, another machine may have the folder, too.
  constexpr std::array<std::string_view, 14> kOwn{"ext2",    "ext3",  "ext4",     "xfs", "btrfs",  "zfs",   "f2fs",
                                                  "overlay", "tmpfs", "bcachefs", "jfs", "rootfs", "ramfs", "reiserfs"};
  std::istringstream lines(mountinfo);
  const auto place = base::file_system_of(folder, lines);
  lines = std::istringstream(mountinfo);
  std::string kind, options;
  for (std::string line; std::getline(lines, line);) {
    // "36 35 98:0 / /mnt rw,noatime master:1 - ext3 /dev/root rw,errors=continue": the last mount at a place counts.
    std::istringstream words(line);
    std::string word, at;
    for (int i = 0; i < 5; ++i) words >> at;
    while (words >> word && word != "-") {
    }
    if (at == place) words >> kind >> word >> options;
  }
  if (std::ranges::find(kOwn, kind) != kOwn.end()) return true;
  return kind.starts_with("nfs") && !has_option(options, "nolock") && !has_option(options, "local_lock=all") &&
         !has_option(options, "local_lock=flock");
}

Running who_runs(const fs::path& data_folder) {
  using Kind = Running::Kind;
  const auto lock = DataFolder(data_folder).lock();
  const auto locked = is_locked(lock);
  Running found;
  found.ready = read_ready_file(data_folder);  // after the lock was looked at: a musterd that ends removes it first
  const auto& ready = found.ready;
  const bool is_held = locked.value_or(ready && (ready->is_alive() || !ready->is_of_this_host()));
  const auto of = ready ? process_text(ready->pid) + (ready->is_of_this_host() ? "" : " on host " + ready->host) : "";
  if (!locked && !ready) {
    found.kind = Kind::kElsewhere;
    found.why = data_folder.native() + " belongs to another user";
    return found;
  }
  if (ready && !ready->is_of_this_host()) {
    if (!is_held && is_lock_seen_everywhere(fs::weakly_canonical(data_folder),
                                            small_text("/proc/self/mountinfo", kMostMountBytes))) {
      found.why = ready->file.native() + " was left by " + of + ", which has ended";
      return found;
    }
    found.kind = Kind::kElsewhere;
    found.why =
        ready->file.native() + " belongs to a musterd on host " + ready->host + ", and this is " + base::host_name();
    return found;
  }
  if (!is_held) {
    if (ready) found.why = ready->file.native() + " was left by " + of + ", which has ended";
    return found;
  }
  if (ready && ready->is_alive()) {
    found.kind = Kind::kHere;
    found.why = "musterd runs on " + data_folder.native() + " (" + of + ")";
    return found;
  }
  found.kind = Kind::kBusy;
  const auto line = small_text(lock, kMostBytes);
  const auto owner = base::whole_number<std::int64_t>(std::string_view(line).substr(0, line.find('\n')));
  found.why =
      "the musterd of " + data_folder.native() + " (" + process_text(owner.value_or(0)) + ") is starting or ending";
  return found;
}

}  // namespace common
