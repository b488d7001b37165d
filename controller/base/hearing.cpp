#include "base/hearing.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

namespace base {
namespace {

// Whatever comes back is an answer; what is wrong with the disk is told by whoever needs to write.
void write_a_byte(const std::filesystem::path& file) {
  const int fd = ::open(file.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return;
  if (::pwrite(fd, "\n", 1, 0) == 1) ::fdatasync(fd);
  ::close(fd);
}

}  // namespace

bool Hearing::was_deaf() {
  const bool stuck = stuck_since().has_value();
  std::lock_guard lock(mutex_);
  const auto now = clock_.monotonic();
  const bool late = last_round_ && now - *last_round_ > kLate;
  const bool stood_still = std::exchange(stood_still_, false);
  last_round_ = now;
  return late || stuck || stood_still;
}

std::optional<core::Millis> Hearing::written_at() const {
  std::lock_guard lock(mutex_);
  return written_at_;
}

core::Millis Hearing::begin() {
  std::lock_guard lock(mutex_);
  const auto now = clock_.monotonic();
  under_way_.insert(now);
  return now;
}

void Hearing::end(core::Millis begun) {
  std::lock_guard lock(mutex_);
  under_way_.erase(under_way_.find(begun));
  written_at_ = clock_.monotonic();
  if (*written_at_ - begun > kStuckAfter) stood_still_ = true;
}

std::optional<core::Millis> Hearing::under_way_longer_than(core::Millis limit) const {
  std::lock_guard lock(mutex_);
  if (under_way_.empty() || clock_.monotonic() - *under_way_.begin() <= limit) return std::nullopt;
  return *under_way_.begin();
}

DiskProbe::DiskProbe(Hearing& hearing, Clock& clock, std::filesystem::path file, bool threads)
    : hearing_(hearing),
      clock_(clock),
      file_(std::move(file)),
      loop_("the disk could not be probed", threads, [this]() -> std::optional<core::Millis> {
        write();
        return std::nullopt;
      }) {
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

void DiskProbe::write() {
  {
    std::lock_guard lock(mutex_);
    if (!wanted_) return;
  }
  {
    const Hearing::Write write(hearing_);
    write_a_byte(file_);
  }
  std::lock_guard lock(mutex_);
  wanted_ = false;
  done_.notify_all();
}

}  // namespace base
