#include "daemon/place.h"

#include <spdlog/spdlog.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <stdexcept>

#include "daemon/usage_error.h"

namespace musterd {
namespace {

using nlohmann::json;

constexpr const char* kForkedBy = "musterd --fork: it stays with the controller whose data folder was copied";

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "";
}

/// Nothing: none is kept, or it makes no sense.
std::optional<Place> parse(const json& kept) {
  try {
    return Place{kept.at("path"), kept.at("host"), kept.at("device"), kept.at("inode")};
  } catch (const json::exception&) {
    return std::nullopt;
  }
}

std::string words(const Place& place) {
  return place.path + " on " + place.host + " (inode " + std::to_string(place.inode) + ")";
}

/// In the records alone: nothing that runs is told.
void let_go(store::Store& store, core::Job job, core::Time now) {
  const auto tell = [&](core::EventBody body) {
    const core::Event event{now, std::move(body)};
    const store::Commit commit{event, core::apply(job, event), {}, {}};
    store.append({&commit, 1});
    job = commit.applied.job;
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
  return {std::filesystem::canonical(data_folder).string(), host_name(), info.st_dev, info.st_ino};
}

bool is_same_folder(const Place& known, const Place& now) {
  return known.inode == now.inode && (known.path == now.path || (known.device == now.device && known.host == now.host));
}

void settle(store::Store& store, const std::filesystem::path& data_folder, Relocation relocation, core::Time now) {
  const auto kept = json::parse(store.place(), nullptr, false);
  const auto known = kept.is_object() ? parse(kept) : std::nullopt;
  const bool is_fork = kept.is_object() && kept.value("fork", false);
  const auto here = place_of(data_folder);
  const bool at_home = !known || is_same_folder(*known, here);
  if (at_home && relocation == Relocation::kFork && !is_fork) {
    throw UsageError("--fork: " + here.path +
                     " is no copy: its store is at home there, and its jobs are its own; copy the " +
                     "folder first, and start musterd on the copy, or leave --fork out");
  }
  if (!at_home && relocation == Relocation::kNone) {
    throw UsageError(
        "the data folder is a copy, or has moved: its store was opened last at " + words(*known) + ", and is now at " +
        words(here) +
        ". Start it once with --moved if no other musterd uses the old one any more: it goes on with its "
        "jobs. Or with --fork to make it a controller of its own: it forgets the jobs that have not ended, "
        "and touches nothing of theirs");
  }
  const bool forks = !at_home && relocation == Relocation::kFork;
  if (forks) {
    // The original's ranks know its ports, and must not find the fork there.
    std::error_code none;
    std::filesystem::remove(data_folder / "ports.json", none);
    const auto jobs = let_all_go(store, now);
    spdlog::warn(
        "this store was a copy of the one at {}; it is one of its own from now on, and {} jobs that have not "
        "ended stay with the other",
        words(*known), jobs);
  } else if (!at_home) {
    spdlog::warn("this store has moved from {} to {}", words(*known), words(here));
  }
  if (known == here) return;
  const json text = {{"path", here.path},
                     {"host", here.host},
                     {"device", here.device},
                     {"inode", here.inode},
                     {"fork", forks || is_fork}};
  store.settle(text.dump(), forks);
}

}  // namespace musterd
