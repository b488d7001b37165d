#include "agent/rank/grpc/grpc_file_writer.h"

#include <unistd.h>

#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <utility>

#include "agent/rank/grpc/grpc_unsent_file.h"

namespace agent::rank {

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
  }
  state_->wake.notify_all();
  done ? thread_.join() : thread_.detach();
}

void FileWriter::say(const std::string& text) {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->lines.size() >= kMostLines) {
      ++state_->lines_dropped;
      return;
    }
    state_->lines.push_back(state_->prefix + text + "\n");
  }
  state_->wake.notify_all();
}

void FileWriter::post(Work what) {
  {
    std::lock_guard lock(state_->mutex);
    // Twice the same is once; so the queue has at most one of each, and one after it.
    if (!state_->queue.empty() && state_->queue.back() == what) return;
    state_->queue.push_back(what);
  }
  state_->wake.notify_all();
}

void FileWriter::reserve() {
  post(Work::kReserve);
}

bool FileWriter::keep(const GrpcOutbox& outbox, const muster::v1::HeartbeatRequest& news) {
  {
    std::lock_guard lock(state_->mutex);
    if (!state_->unsent_is_idle()) return false;
    state_->bytes = state_->unsent.collect(outbox, news);
    state_->queue.push_back(Work::kAppend);
  }
  state_->wake.notify_all();
  return true;
}

void FileWriter::drop() {
  {
    std::lock_guard lock(state_->mutex);
    if (state_->unsent_is_idle() && state_->unsent.empty()) return;
  }
  post(Work::kDrop);
}

void FileWriter::remove() {
  post(Work::kRemove);
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
      print(*state, line);
      if (dropped > 0) print(*state, state->prefix + "warning: " + std::to_string(dropped) + " lines were dropped\n");
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
  print(state, state.prefix + "warning: what the controller has not heard is kept in memory only: " +
                   state.unsent.problem() + "\n");
}

// Not through stdio: whoever waits in a print of the training's holds the lock of stderr.
void FileWriter::print(State&, const std::string& line) {
  for (std::size_t at = 0; at < line.size();) {
    const auto count = ::write(STDERR_FILENO, line.data() + at, line.size() - at);
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) return;
    at += static_cast<std::size_t>(count);
  }
}

}  // namespace agent::rank
