#include "agent/rank/grpc/grpc_unsent_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <google/protobuf/util/delimited_message_util.h>

#include <cerrno>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <filesystem>
#include <mutex>
#include <sstream>
#include <utility>

#include "base/durable_file.h"

namespace agent::rank {
namespace {

std::string delimited(const muster::v1::HeartbeatRequest& request) {
  std::ostringstream out;
  google::protobuf::util::SerializeDelimitedToOstream(request, &out);
  return out.str();
}

/// Writes from the front of `bytes`, as far as it goes, and takes that away. Returns 0 or an errno.
int write_some(int fd, std::string& bytes) {
  while (!bytes.empty()) {
    const auto count = ::write(fd, bytes.data(), bytes.size());
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) return errno;
    bytes.erase(0, static_cast<std::size_t>(count));
  }
  return 0;
}

int open_for_append(const std::string& path) {
  std::error_code ignored;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), ignored);
  return ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0600);
}

/// Not through stdio: whoever waits in a print of the training's holds the lock of stderr.
void print(const std::string& line) {
  for (std::size_t at = 0; at < line.size();) {
    const auto count = ::write(STDERR_FILENO, line.data() + at, line.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    at += static_cast<std::size_t>(count);
  }
}

}  // namespace

void UnsentFile::reserve() {
  if (path_.empty()) return;
  const int fd = open_for_append(path_);
  if (fd < 0) return;
  reserved_ = ::fallocate(fd, FALLOC_FL_KEEP_SIZE, 0, kReservedBytes) == 0;
  ::close(fd);
  if (!reserved_ && empty()) ::unlink(path_.c_str());
}

std::string UnsentFile::collect(const GrpcOutbox& outbox, const muster::v1::HeartbeatRequest& news) {
  std::string bytes;
  if (path_.empty() || given_up_) return bytes;
  for (bool more = true; more;) {
    auto request = news;
    const auto batch = outbox.fill(request, kept_steps_, kept_checkpoints_);
    // Nothing new would only fill the disk.
    if (batch.empty() && !news.leaving() && !empty()) break;
    bytes += delimited(request);
    kept_steps_ = batch.first_step + batch.steps;
    kept_checkpoints_ = batch.first_checkpoint + batch.checkpoints;
    more = batch.full;
  }
  return bytes;
}

void UnsentFile::append(const std::string& bytes) {
  pending_ += bytes;
  if (pending_.empty() || given_up_) return;
  if (bytes_ + static_cast<std::int64_t>(pending_.size()) > kMostBytes) {
    problem_ = "it has grown to " + std::to_string(kMostBytes >> 20) + " MiB";
    given_up_ = true;
  } else {
    write_pending();
  }
  if (given_up_) pending_.clear();
}

// Opened anew each time: on a network folder, closing is what makes it visible to others, and tells what it refused.
void UnsentFile::write_pending() {
  const int fd = open_for_append(path_);
  int error = fd < 0 ? errno : 0;
  if (fd >= 0) {
    const std::string all = pending_;
    error = write_some(fd, pending_);
    if (::close(fd) != 0) {
      error = errno;
      pending_ = all;
      // Which part of it is there nobody knows.
      if (::truncate(path_.c_str(), bytes_) != 0) given_up_ = true;
    }
    bytes_ += static_cast<std::int64_t>(all.size() - pending_.size());
  }
  problem_ = error == 0 ? "" : std::strerror(error);
  if (error != 0 && !base::lacks_room(error)) given_up_ = true;
}

void UnsentFile::drop() {
  const bool was_written = bytes_ > 0;
  bytes_ = 0;
  pending_.clear();
  problem_.clear();
  given_up_ = false;
  if (!was_written) return;
  if (!reserved_ || ::truncate(path_.c_str(), 0) != 0) {
    ::unlink(path_.c_str());
  }
  if (reserved_) reserve();
}

void UnsentFile::remove() {
  const bool there = bytes_ > 0 || reserved_;
  reserved_ = false;
  drop();
  if (there) ::unlink(path_.c_str());
}

// Shared with the thread, which may outlive the FileWriter.
struct FileWriter::State {
  State(std::string path, std::string line_prefix) : unsent(std::move(path)), prefix(std::move(line_prefix)) {}

  UnsentFile unsent;  // the thread's while `on_unsent`, else of whoever holds the mutex
  const std::string prefix;
  std::mutex mutex;
  std::condition_variable wake, idle;
  std::deque<Work> queue;
  std::string bytes;  // what the queued kAppend appends
  std::deque<std::string> lines;
  std::size_t lines_dropped = 0;
  bool busy = false, on_unsent = false;
  bool closed = false;
  bool told_unkept = false;

  bool unsent_is_idle() const { return !on_unsent && queue.empty(); }
  bool is_idle() const { return !busy && queue.empty() && lines.empty(); }
};

FileWriter::FileWriter(std::string unsent, std::string prefix)
    : state_(std::make_shared<State>(std::move(unsent), std::move(prefix))) {
  thread_ = std::thread([state = state_] { run(state); });
}

FileWriter::~FileWriter() {
  const bool done = wait(Clock::now() + kLastWait);
  {
    std::lock_guard lock(state_->mutex);
    state_->closed = true;
    state_->wake.notify_all();
  }
  done ? thread_.join() : thread_.detach();
}

void FileWriter::say(const std::string& text) {
  std::lock_guard lock(state_->mutex);
  if (state_->lines.size() >= kMostLines) {
    ++state_->lines_dropped;
    return;
  }
  state_->lines.push_back(state_->prefix + text + "\n");
  state_->wake.notify_all();
}

void FileWriter::post(Work what) {
  std::lock_guard lock(state_->mutex);
  // Twice the same is once; so the queue has at most one of each, and one after it.
  if (!state_->queue.empty() && state_->queue.back() == what) return;
  state_->queue.push_back(what);
  state_->wake.notify_all();
}

bool FileWriter::keep(const GrpcOutbox& outbox, const muster::v1::HeartbeatRequest& news) {
  std::lock_guard lock(state_->mutex);
  if (!state_->unsent_is_idle()) return false;
  state_->bytes = state_->unsent.collect(outbox, news);
  state_->queue.push_back(Work::kAppend);
  state_->wake.notify_all();
  return true;
}

void FileWriter::drop_if_told(const GrpcOutbox& outbox) {
  {
    std::lock_guard lock(state_->mutex);
    if (!state_->unsent_is_idle() || state_->unsent.empty() || !state_->unsent.is_told(outbox)) return;
  }
  post(Work::kDrop);
}

bool FileWriter::holds_all() const {
  std::lock_guard lock(state_->mutex);
  return state_->unsent_is_idle() && state_->unsent.holds_all();
}

bool FileWriter::holds_nothing() const {
  std::lock_guard lock(state_->mutex);
  return state_->unsent_is_idle() && state_->unsent.empty();
}

bool FileWriter::wait(Clock::time_point until) {
  std::unique_lock lock(state_->mutex);
  return state_->idle.wait_until(lock, until, [&] { return state_->is_idle(); });
}

void FileWriter::run(const std::shared_ptr<State>& state) {
  std::unique_lock lock(state->mutex);
  while (true) {
    state->wake.wait(lock, [&] { return state->closed || !state->queue.empty() || !state->lines.empty(); });
    if (state->closed) return;
    state->busy = true;
    // The unsent file first: a log on another disk may be the one that stands still.
    if (!state->queue.empty()) {
      const auto what = state->queue.front();
      state->queue.pop_front();
      state->on_unsent = true;
      lock.unlock();
      work(*state, what);
      lock.lock();
      state->on_unsent = false;
    } else {
      auto line = std::move(state->lines.front());
      state->lines.pop_front();
      const auto dropped = std::exchange(state->lines_dropped, 0);
      lock.unlock();
      print(line);
      if (dropped > 0) print(state->prefix + "warning: " + std::to_string(dropped) + " lines were dropped\n");
      lock.lock();
    }
    state->busy = false;
    state->idle.notify_all();
  }
}

void FileWriter::work(State& state, Work what) {
  switch (what) {
    case Work::kReserve:
      return state.unsent.reserve();
    case Work::kAppend:
      state.unsent.append(std::exchange(state.bytes, {}));
      break;
    case Work::kDrop:
      return state.unsent.drop();
    case Work::kRemove:
      return state.unsent.remove();
  }
  if (state.unsent.problem().empty() || std::exchange(state.told_unkept, true)) return;
  print(state.prefix + "warning: what the controller has not heard is kept in memory only: " + state.unsent.problem() +
        "\n");
}

}  // namespace agent::rank
