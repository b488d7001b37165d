#include "actions/fence.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <system_error>
#include <thread>

#include "contract/fence_file.h"
#include "os/durable_file.h"
#include "os/fd.h"

namespace actions {
namespace {

// flock has no time limit of its own.
bool lock_within(int fd, core::Millis patience) {
  const auto until = std::chrono::steady_clock::now() + patience;
  while (::flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (std::chrono::steady_clock::now() >= until) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

}  // namespace

bool raise_fence(const std::filesystem::path& folder, core::AttemptNumber attempt, core::Millis patience) {
  os::make_folders(folder);
  const auto lock_path = folder / contract::kFenceLock;
  const os::Fd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) throw std::system_error(errno, std::generic_category(), "cannot open " + lock_path.string());
  const bool locked = lock_within(lock.get(), patience);
  if (read_fence(folder).value_or(0) < attempt) {
    os::write_file_durably(folder / contract::kFenceFile, contract::fence_text(attempt));
  }
  return locked;
}

}  // namespace actions
