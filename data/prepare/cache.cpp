#include "data/prepare/prepare_job.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <stdexcept>
#include <string>
#include <system_error>
#include <thread>

#include "base/checksum.h"
#include "base/durable_file.h"
#include "base/fd.h"
#include "base/host_name.h"
#include "data/format/dataset.h"
#include "data/prepare/look.h"

namespace data::prepare {
namespace {

namespace fs = std::filesystem;
using std::chrono::milliseconds;

constexpr std::size_t kNameDigits = 16;
constexpr milliseconds kFirstWait{20}, kLongestWait{1000};

/// A lock of a folder of the cache, in a file beside the folder. The kernel releases it when its holder dies.
class FolderLock {
 public:
  explicit FolderLock(const fs::path& folder) : path_(folder.native() + ".lock") {
    fd_ = base::Fd(::open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0644));
    if (fd_) return;
    why_not_ = errno;
    fd_ = base::Fd(::open(path_.c_str(), O_RDONLY | O_CLOEXEC));  // another user's, or on a disk that takes no writes
  }

  /// Checks that this process may make the data: it could create or write the lock. Throws std::system_error if not.
  void check_writes() const {
    if (why_not_ != 0) throw std::system_error(why_not_, std::generic_category(), "cannot open " + path_.native());
  }

  enum class Taken : std::uint8_t { kYes, kStopped, kNoLocks };

  /// Waits for the lock. `kind`: LOCK_SH or LOCK_EX. A lock that is held is given up first, because two processes that
  /// both hold LOCK_SH and want LOCK_EX would wait for each other where locks are changed in place (NFS). kNoLocks: the
  /// file system has none.
  Taken take(int kind, const std::atomic<int>& stop) {
    if (!fd_) return Taken::kNoLocks;
    ::flock(fd_.get(), LOCK_UN);
    for (milliseconds wait = kFirstWait;; wait = std::min(2 * wait, kLongestWait)) {
      if (::flock(fd_.get(), kind | LOCK_NB) == 0) return Taken::kYes;
      if (errno != EWOULDBLOCK && errno != EINTR) return Taken::kNoLocks;
      if (stop != 0) return Taken::kStopped;
      std::this_thread::sleep_for(wait);
    }
  }

 private:
  const fs::path path_;
  base::Fd fd_;
  int why_not_ = 0;  // it cannot be opened for writing
};

bool is_there(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / format::kDescriptionName, ignored);
}

/// The mark that tells two descriptions of one folder apart.
std::string mark_of(const fs::path& folder) {
  std::error_code ignored;
  return std::to_string(fs::last_write_time(folder / format::kDescriptionName, ignored).time_since_epoch().count());
}

enum class State : std::uint8_t { kMissing, kWhole, kDamaged, kStopped };

/// Reads all data that are there. Damage is told.
State state_of(const fs::path& folder, Progress& progress, const std::atomic<int>& stop) {
  if (!is_there(folder)) return State::kMissing;
  try {
    return check_bytes(folder, stop) ? State::kWhole : State::kStopped;
  } catch (const std::system_error&) {
    throw;  // it names the path, and the next try may succeed
  } catch (const std::runtime_error& damage) {
    progress.say(std::string("made anew: ") + damage.what());
    return State::kDamaged;
  }
}

/// Renames the folder and then removes it, so that after a kill no half of it is left under its name. Processes of this
/// machine that map its files keep them.
void remove_damaged(const fs::path& folder) {
  const fs::path aside = folder.native() + ".damaged";
  std::error_code ignored;
  fs::remove_all(aside, ignored);
  fs::rename(folder, aside);
  fs::remove_all(aside, ignored);
}

/// Makes the data under a name of this process, and gives them their own if no other process was faster.
Ended make_without_locks(Job& job, Progress& progress, const std::atomic<int>& stop) {
  const fs::path own = job.folder;
  job.folder = own.native() + ".of-" + base::host_name() + "-" + std::to_string(::getpid());
  const auto ended = prepare(job, progress, stop);
  const fs::path made = std::exchange(job.folder, own);
  if (ended == Ended::kStopped) return ended;
  std::error_code error, ignored;
  fs::rename(made, own, error);
  if (!error) return ended;
  fs::remove_all(made, ignored);
  if (is_there(own)) return Ended::kWasDone;
  throw std::system_error(error, "cannot rename " + made.native());
}

}  // namespace

fs::path folder_in_cache(const Job& job, const fs::path& cache) {
  return cache / ("data-" + base::hex(base::sha256(options_of(job))).substr(0, kNameDigits));
}

Ended prepare_in_cache(Job& job, const fs::path& cache, Progress& progress, const std::atomic<int>& stop) {
  using Taken = FolderLock::Taken;
  base::make_folders(cache);
  job.folder = folder_in_cache(job, cache);
  FolderLock lock(job.folder);
  for (;;) {
    // Processes check the data side by side.
    if (lock.take(LOCK_SH, stop) == Taken::kStopped) return Ended::kStopped;
    const std::string mark = mark_of(job.folder);
    const State state = state_of(job.folder, progress, stop);
    if (state == State::kStopped) return Ended::kStopped;
    if (state == State::kWhole) return Ended::kWasDone;
    lock.check_writes();
    const auto taken = lock.take(LOCK_EX, stop);
    if (taken == Taken::kStopped) return Ended::kStopped;
    if (is_there(job.folder) && mark_of(job.folder) != mark) continue;  // another process has made them meanwhile
    if (state == State::kDamaged) remove_damaged(job.folder);
    return taken == Taken::kNoLocks ? make_without_locks(job, progress, stop) : prepare(job, progress, stop);
  }
}

}  // namespace data::prepare
