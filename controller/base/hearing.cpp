#include "base/hearing.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
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

void Reading::attach(std::function<void(std::uint64_t)> send) {
  const std::lock_guard lock(send_mutex_);
  send_ = std::move(send);
}

void Reading::detach() {
  const std::lock_guard lock(send_mutex_);
  send_ = nullptr;
  lost();
}

void Reading::ask() {
  const std::lock_guard sending(send_mutex_);
  if (!send_) return;
  std::uint64_t number = 0;
  {
    const std::lock_guard lock(mutex_);
    if (under_way_) return;
    under_way_ = true;
    number = ++number_;
    asked_at_ = clock_.monotonic();
    // Of what arrived before the first word nothing is known, and nobody is judged by it.
    if (!read_until_) read_until_ = asked_at_;
  }
  send_(number);
}

void Reading::arrived(std::uint64_t n) {
  const std::lock_guard lock(mutex_);
  if (!under_way_ || n != number_) return;
  under_way_ = false;
  read_until_ = asked_at_;
  lag_ = clock_.monotonic() - *asked_at_;
}

void Reading::lost() {
  const std::lock_guard lock(mutex_);
  under_way_ = false;
  read_until_.reset();
  lag_ = core::Millis(0);
}

core::Millis Reading::read_until() const {
  const std::lock_guard lock(mutex_);
  return read_until_.value_or(clock_.monotonic());
}

core::Millis Reading::lag() const {
  const std::lock_guard lock(mutex_);
  return under_way_ ? std::max(lag_, clock_.monotonic() - *asked_at_) : lag_;
}

std::optional<core::Millis> Reading::asked_ago() const {
  const std::lock_guard lock(mutex_);
  if (!asked_at_) return std::nullopt;
  return clock_.monotonic() - *asked_at_;
}

}  // namespace base
