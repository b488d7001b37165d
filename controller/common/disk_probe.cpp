#include "controller/common/disk_probe.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace common {
namespace {

// Whatever comes back is an answer; what is wrong with the disk is told by whoever needs to write.
void write_a_byte(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return;
  if (::pwrite(fd, "\n", 1, 0) == 1) ::fdatasync(fd);
  ::close(fd);
}

}  // namespace

DiskProbe::DiskProbe(Hearing& hearing, Clock& clock, std::filesystem::path file, bool threads)
    : hearing_(hearing),
      clock_(clock),
      file_(std::move(file)),
      loop_("the disk could not be probed", threads, [this] { return write(); }) {
  loop_.start();
}

void DiskProbe::ask() {
  const auto written_at = hearing_.written_at();
  if (!loop_.is_running() || (written_at && clock_.monotonic() - *written_at < kAgainAfter)) return;
  {
    std::lock_guard lock(mutex_);
    wanted_ = true;
  }
  loop_.wake();
}

void DiskProbe::ask_and_wait(core::Millis patience) {
  ask();
  std::unique_lock lock(mutex_);
  done_.wait_for(lock, patience, [&] { return !wanted_; });
}

std::optional<core::Millis> DiskProbe::write() {
  {
    std::lock_guard lock(mutex_);
    if (!wanted_) return std::nullopt;
  }
  {
    const Hearing::Write write(hearing_);
    write_a_byte(file_);
  }
  std::lock_guard lock(mutex_);
  wanted_ = false;
  done_.notify_all();
  return std::nullopt;
}

}  // namespace common
