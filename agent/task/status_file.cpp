#include "agent/task/status_file.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <nlohmann/json.hpp>
#include <system_error>
#include <utility>

namespace worker::task {
namespace {

const char* name_of(RankStatus::State state) {
  switch (state) {
    case RankStatus::State::kRunning:
      return "running";
    case RankStatus::State::kExited:
      return "exited";
    case RankStatus::State::kStepLost:
      return "step_lost";
  }
  return "running";
}

[[noreturn]] void fail(const std::filesystem::path& path) {
  throw std::system_error(errno, std::generic_category(), path.string());
}

void write_durably(const std::filesystem::path& path, const std::string& text) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (fd < 0) fail(path);
  const bool done = ::write(fd, text.data(), text.size()) == static_cast<ssize_t>(text.size()) && ::fsync(fd) == 0;
  const int error = errno;
  ::close(fd);
  errno = error;
  if (!done) fail(path);
}

}  // namespace

void write_status(const std::filesystem::path& attempt_folder, int rank, const RankStatus& status) {
  const nlohmann::ordered_json json = {{"format", 1},
                                       {"state", name_of(status.state)},
                                       {"node", status.node},
                                       {"pid", status.pid},
                                       {"exit_code", status.exit_code},
                                       {"signal", status.signal},
                                       {"ended_at_ms", status.ended_at_ms},
                                       {"out_of_memory", status.out_of_memory},
                                       {"signals_seen", status.signals_seen},
                                       {"trouble", status.trouble},
                                       {"error", status.error}};
  const auto folder = attempt_folder / "ranks";
  std::filesystem::create_directories(folder);
  const auto path = folder / ("rank-" + std::to_string(rank) + ".json");
  const auto draft = folder / (".rank-" + std::to_string(rank) + "." + std::to_string(::getpid()));
  write_durably(draft, json.dump(-1, ' ', true, nlohmann::json::error_handler_t::replace) + "\n");
  std::filesystem::rename(draft, path);
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd >= 0) {
    ::fsync(fd);
    ::close(fd);
  }
}

StatusKeeper::StatusKeeper(std::filesystem::path attempt_folder, int rank)
    : attempt_folder_(std::move(attempt_folder)), rank_(rank), thread_([this] { run(); }) {}

void StatusKeeper::put(const RankStatus& status) {
  {
    std::lock_guard lock(mutex_);
    next_ = status;
  }
  wake_.notify_all();
}

void StatusKeeper::finish() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StatusKeeper::run() {
  std::unique_lock lock(mutex_);
  while (true) {
    wake_.wait(lock, [this] { return closed_ || next_.has_value(); });
    if (!next_) return;
    const auto status = *std::exchange(next_, std::nullopt);
    lock.unlock();
    try {
      write_status(attempt_folder_, rank_, status);
    } catch (const std::exception& error) {
      std::fprintf(stderr, "muster-task: rank %d: %s\n", rank_, error.what());
    }
    lock.lock();
  }
}

}  // namespace worker::task
