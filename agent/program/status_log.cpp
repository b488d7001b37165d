#include "agent/program/status_log.h"

#include <fcntl.h>

#include <cerrno>
#include <cstring>
#include <utility>

#include "agent/protocol/facts.h"
#include "base/signals_blocked.h"

namespace agent::program {
namespace {

// Longer than any line of a rank's exit, and than a rank's part in Started.
constexpr std::size_t kBytesPerRank = 1024;
constexpr std::size_t kBytesOfRest = 4096;

}  // namespace

StatusLog::StatusLog(std::filesystem::path folder, std::uint32_t first_rank, std::size_t ranks)
    : folder_(std::move(folder)), name_(protocol::status_file(first_rank)), ranks_(ranks) {}

bool StatusLog::begin() {
  const base::Fd folder(::open(folder_.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!folder) return false;
  base::Fd file(::openat(folder.get(), name_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!file) return false;
  const auto room = static_cast<off_t>(kBytesOfRest + 2 * kBytesPerRank * ranks_);
  // Not every file system can set room aside; flush() repeats what a full disk refused.
  if (::fallocate(file.get(), FALLOC_FL_KEEP_SIZE, 0, room) != 0 && errno == ENOSPC) return false;
  if (::fsync(folder.get()) != 0) return false;
  file_ = std::move(file);
  return true;
}

bool StatusLog::write() {
  if (!file_ && !begin()) return false;
  while (written_ < lines_.size()) {
    const auto count =
        ::pwrite(file_.get(), lines_.data() + written_, lines_.size() - written_, static_cast<off_t>(written_));
    if (count > 0) {
      written_ += static_cast<std::size_t>(count);
      synced_ = false;
    } else if (count < 0 && errno != EINTR) {
      return false;
    }
  }
  return true;
}

bool StatusLog::flush() {
  if (!write()) return false;
  if (!synced_) synced_ = ::fdatasync(file_.get()) == 0;
  return synced_;
}

void StatusLog::erase() {
  lines_.clear();
  written_ = 0;
  if (file_ && ::ftruncate(file_.get(), 0) == 0) synced_ = ::fdatasync(file_.get()) == 0;
}

StatusWriter::StatusWriter(StatusLog& log) : log_(log) {
  const base::SignalsBlocked quiet;  // signals are the main thread's
  thread_ = std::thread([this] { run(); });
}

StatusWriter::~StatusWriter() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify_all();
  thread_.join();
}

void StatusWriter::add(const std::string& line) {
  std::unique_lock lock(mutex_);
  const bool behind = written_ < added_;
  pending_.push_back(line);
  ++added_;
  wake_.notify_all();
  if (!behind) progress_.wait_for(lock, kPatience, [this] { return written_ == added_; });
}

bool StatusWriter::recorded() const {
  std::lock_guard lock(mutex_);
  return recorded_ == added_;
}

std::string StatusWriter::refusal() const {
  std::lock_guard lock(mutex_);
  return refusal_;
}

void StatusWriter::run() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    if (recorded_ == added_) {
      wake_.wait(lock);
      continue;
    }
    put(lock);
    // Refused; unless there are new lines it is tried again later.
    if (recorded_ < added_) wake_.wait_for(lock, kTryAgain, [&] { return closed_ || !pending_.empty(); });
  }
}

void StatusWriter::put(std::unique_lock<std::mutex>& lock) {
  if (!pending_.empty()) {
    log_.add(pending_.front());
    pending_.pop_front();
  }
  const auto lines = added_ - pending_.size();
  lock.unlock();
  const bool written = log_.write();
  lock.lock();
  if (written) written_ = lines;
  progress_.notify_all();
  lock.unlock();
  const bool recorded = log_.flush();
  const auto* const why = recorded ? "" : std::strerror(errno);
  lock.lock();
  if (recorded) recorded_ = lines;
  refusal_ = why;
}

}  // namespace agent::program
