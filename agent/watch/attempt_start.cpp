#include "agent/watch/attempt_start.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <system_error>
#include <thread>

#include "agent/watch/fence.h"
#include "base/durable_file.h"
#include "base/fd.h"
#include "base/whole_number.h"
#include "spec/variables.h"

namespace agent::watch {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kFencePatience{5000};

// flock has no time limit of its own.
bool lock_within(int fd, milliseconds patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(milliseconds(20));
  }
  return true;
}

/// The variable; empty: the launch file does not have it.
std::string text_of(const protocol::TaskLaunch& launch, const char* name) {
  const auto found = launch.env.find(name);
  return found == launch.env.end() ? std::string() : found->second;
}

std::int64_t number_of(const protocol::TaskLaunch& launch, const char* name) {
  return base::whole_number<std::int64_t>(text_of(launch, name)).value_or(0);
}

}  // namespace

AttemptStart start_of(const protocol::TaskLaunch& launch, const std::filesystem::path& attempt_folder) {
  namespace variable = spec::variable;
  return {.key = {number_of(launch, variable::kJobId), number_of(launch, variable::kAttempt)},
          .folder = attempt_folder,
          .log_folder = launch.log_folder,
          .fence_folder = launch.unprepared ? launch.fence_folder : std::string(),
          .run_path = text_of(launch, variable::kRunFile),
          .run_file = launch.run_file,
          .cache_folder = launch.cache_folder};
}

Fencing make_start(const AttemptStart& start) {
  base::make_private_folder(start.folder);
  base::make_folders(start.log_folder);
  auto fencing = Fencing::kRaised;
  if (!start.fence_folder.empty()) {
    if (!raise_fence(start.fence_folder, start.key, kFencePatience)) fencing = Fencing::kRaisedAgain;
    const auto fence = read_fence(start.fence_folder);
    if (fence && !fence->lets(start.key.job, start.key.attempt)) return Fencing::kOver;
  }
  if (start.run_file.empty()) return fencing;
  if (!start.cache_folder.empty()) base::make_private_folder(start.cache_folder);
  base::write_file_durably(start.run_path, start.run_file);
  return fencing;
}

bool raise_fence(const std::filesystem::path& folder, const protocol::Fence& key, milliseconds patience) {
  base::make_folders(folder);
  const auto lock_path = folder / protocol::kFenceLock;
  const base::Fd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) throw std::system_error(errno, std::generic_category(), "cannot open " + lock_path.string());
  const bool locked = lock_within(lock.get(), patience);
  const auto fence = read_fence(folder);
  if (!fence || fence->job != key.job || fence->attempt < key.attempt) {
    base::write_file_durably(folder / protocol::kFenceFile, protocol::fence_text(key));
  }
  return locked;
}

}  // namespace agent::watch
