#include "prepare/cache.h"

#include <fcntl.h>
#include <sys/file.h>

#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "os/durable_file.h"
#include "os/fd.h"
#include "os/sha256.h"
#include "prepare/look.h"
#include "prepared/description.h"

namespace prepare {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kNameDigits = 16;
constexpr std::chrono::milliseconds kLook{20};

fs::path folder_of(const Job& job, const fs::path& cache) {
  return cache / ("data-" + os::hex(os::sha256(options_of(job))).substr(0, kNameDigits));
}

/// A lock of the folder, beside it. The kernel releases it when its holder dies.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder) : path_(folder.native() + ".lock") {
    fd_ = os::Fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (!fd_) throw std::system_error(errno, std::generic_category(), "cannot open " + path_.native());
  }

  /// Waits for the lock. `kind`: LOCK_SH or LOCK_EX. Returns false once `stop` is not 0. A file system without locks
  /// gives none: the folder's own lock then refuses a second process.
  bool take(int kind, const std::atomic<int>& stop) {
    while (::flock(fd_.get(), kind | LOCK_NB) != 0) {
      if (errno != EWOULDBLOCK && errno != EINTR) return true;
      if (stop != 0) return false;
      std::this_thread::sleep_for(kLook);
    }
    return true;
  }

 private:
  const fs::path path_;
  os::Fd fd_;
};

enum class State : std::uint8_t { kMissing, kWhole, kDamaged, kStopped };

State state_of(const fs::path& folder, Progress& progress, const std::atomic<int>& stop) {
  std::error_code error;
  if (!fs::exists(folder / prepared::kDescriptionName, error)) return State::kMissing;
  try {
    return check_bytes(folder, stop) ? State::kWhole : State::kStopped;
  } catch (const std::system_error&) {
    throw;  // it names the path, and the next try may succeed
  } catch (const std::runtime_error& damage) {
    progress.say(std::string("made anew: ") + damage.what());
    return State::kDamaged;
  }
}

/// Renames the folder and then removes it, so that after a kill no half of it is left under its name. Processes that
/// map its files keep them.
void remove_damaged(const fs::path& folder) {
  const fs::path aside = folder.native() + ".damaged";
  fs::remove_all(aside);
  fs::rename(folder, aside);
  fs::remove_all(aside);
}

}  // namespace

Ended prepare_in_cache(Job& job, const fs::path& cache, Progress& progress, const std::atomic<int>& stop) {
  os::make_folders(cache);
  job.folder = folder_of(job, cache);
  FolderLock lock(job.folder);
  if (!lock.take(LOCK_SH, stop)) return Ended::kStopped;
  State state = state_of(job.folder, progress, stop);
  if (state == State::kMissing || state == State::kDamaged) {
    // Another process may have made the data before this one holds the lock.
    if (!lock.take(LOCK_EX, stop)) return Ended::kStopped;
    state = state_of(job.folder, progress, stop);
    if (state == State::kDamaged) remove_damaged(job.folder);
  }
  if (state == State::kStopped) return Ended::kStopped;
  if (state == State::kWhole) return Ended::kWasDone;
  return prepare(job, progress, stop);
}

}  // namespace prepare
