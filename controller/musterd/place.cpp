#include "controller/musterd/place.h"

#include <fcntl.h>
#include <linux/magic.h>
#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <sys/vfs.h>

#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "base/host_name.h"
#include "base/usage_error.h"
#include "controller/core/core_text.h"

namespace musterd {
namespace {

using nlohmann::json;

constexpr const char* kForkedBy = "musterd --fork: the job stays with the controller whose data folder was copied";

/// nullopt: the text holds no valid place.
std::optional<Place> parse(const json& kept) {
  try {
    return Place{kept.at("path"),
                 kept.at("host"),
                 kept.at("device"),
                 kept.at("inode"),
                 kept.value("birth_ns", std::int64_t{0}),
                 kept.value("fs_id", std::uint64_t{0})};
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

/// 0: the file system does not know it.
std::int64_t birth_of(const std::filesystem::path& folder) {
  struct statx info {};
  if (::statx(AT_FDCWD, folder.c_str(), 0, STATX_BTIME, &info) != 0 || (info.stx_mask & STATX_BTIME) == 0) return 0;
  return info.stx_btime.tv_sec * std::int64_t{1'000'000'000} + info.stx_btime.tv_nsec;
}

/// 0: the file system has no lasting id.
std::uint64_t fs_id_of(const std::filesystem::path& folder) {
  struct statfs info {};
  if (::statfs(folder.c_str(), &info) != 0 || info.f_type != EXT4_SUPER_MAGIC) return 0;
  std::uint64_t id = 0;
  static_assert(sizeof(info.f_fsid) == sizeof(id));
  std::memcpy(&id, &info.f_fsid, sizeof(id));
  return id;
}

std::string words(const Place& place) {
  const core::Time birth{std::chrono::floor<core::Millis>(std::chrono::nanoseconds(place.birth_ns))};
  return place.path + " on " + place.host + " (inode " + std::to_string(place.inode) +
         (place.birth_ns == 0 ? "" : ", made " + core::utc_text(birth)) +
         (place.fs_id == 0 ? "" : ", file system " + std::to_string(place.fs_id)) + ")";
}

/// Ends the job in this store only. The processes of the attempt belong to the original controller.
void let_go(store::Store& store, core::Job job, core::Time now) {
  const auto tell = [&](core::EventBody body) {
    const core::Event event{now, std::move(body)};
    const store::Commit commit{event, store::shared(core::apply(job, event)), {}, {}};
    store.append({&commit, 1});
    job = commit.applied->job;
  };
  const auto* attempt = job.current();
  const bool runs = attempt != nullptr && attempt->state != core::AttemptState::kEnded;
  const auto number = attempt == nullptr ? 0 : attempt->number;
  tell(core::CancelRequested{kForkedBy});
  if (runs) tell(core::AttemptGone{number, core::Cause::kCancelled, kForkedBy});
}

std::size_t let_all_go(store::Store& store, core::Time now) {
  const auto jobs = store.load_open();
  for (const auto& job : jobs) let_go(store, job, now);
  std::vector<std::int64_t> actions;
  for (const auto& action : store.pending_actions()) actions.push_back(action.id);
  store.complete_actions(actions);
  return jobs.size();
}

}  // namespace

Place place_of(const std::filesystem::path& data_folder) {
  struct stat info {};
  if (::stat(data_folder.c_str(), &info) != 0) {
    throw std::runtime_error("cannot look at the data folder " + data_folder.string() + ": " + std::strerror(errno));
  }
  return {std::filesystem::canonical(data_folder).string(),
          base::host_name(),
          info.st_dev,
          info.st_ino,
          birth_of(data_folder),
          fs_id_of(data_folder)};
}

bool is_same_folder(const Place& known, const Place& now) {
  if (known.birth_ns != 0 && now.birth_ns != 0 && known.birth_ns != now.birth_ns) return false;
  if (known.fs_id != 0 && now.fs_id != 0 && known.fs_id != now.fs_id) return false;
  return known.inode == now.inode && (known.path == now.path || (known.device == now.device && known.host == now.host));
}

void settle(store::Store& store, const std::filesystem::path& data_folder, Relocation relocation, core::Time now) {
  const auto kept = json::parse(store.place(), nullptr, false);
  const auto known = kept.is_object() ? parse(kept) : std::nullopt;
  const bool is_fork = kept.is_object() && kept.value("fork", false);
  auto here = place_of(data_folder);
  const bool at_home = !known || is_same_folder(*known, here);
  // Another machine may have mounted the folder, and its kernel may not know birth or file system.
  if (known && at_home && here.birth_ns == 0) here.birth_ns = known->birth_ns;
  if (known && at_home && here.fs_id == 0) here.fs_id = known->fs_id;
  if (at_home && relocation == Relocation::kFork && !is_fork) {
    throw base::UsageError(
        "--fork: " + here.path +
        " is not a copy: its store was opened here before, and its jobs belong to it; copy the folder first and start "
        "musterd on the copy, or leave --fork out");
  }
  if (!at_home && relocation == Relocation::kNone) {
    throw base::UsageError(
        "the data folder is a copy, or has moved: its store was opened last at " + words(*known) + ", and is now at " +
        words(here) +
        ". Start musterd once with --moved if no other musterd uses the old folder any more: it goes on with the jobs. "
        "Start it once with --fork to get a separate controller: it drops the jobs that have not ended, and does not "
        "touch their processes and files");
  }
  const bool forks = !at_home && relocation == Relocation::kFork;
  if (forks) {
    // The original's ranks connect to the remembered ports, and must not reach the fork.
    std::error_code none;
    std::filesystem::remove(data_folder / "ports.json", none);
    const auto jobs = let_all_go(store, now);
    spdlog::warn(
        "this store was a copy of the one at {}; it is a separate store from now on, and {} jobs that have not "
        "ended stay with the original",
        words(*known), jobs);
  } else if (!at_home) {
    spdlog::warn("this store has moved from {} to {}", words(*known), words(here));
  }
  if (known == here) return;
  const json text = {{"path", here.path},       {"host", here.host},         {"device", here.device},
                     {"inode", here.inode},     {"birth_ns", here.birth_ns}, {"fs_id", here.fs_id},
                     {"fork", forks || is_fork}};
  store.settle(text.dump(), forks);
}

}  // namespace musterd
