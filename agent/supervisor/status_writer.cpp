#include "agent/supervisor/status_writer.h"

#include <utility>

namespace agent::supervisor {

StatusWriter::StatusWriter(StatusLog& log) : log_(log), thread_([this] { run(); }) {}

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
  lock.lock();
  if (recorded) recorded_ = lines;
}

}  // namespace agent::supervisor
