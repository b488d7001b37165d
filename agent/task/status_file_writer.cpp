#include "agent/task/status_file_writer.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <system_error>
#include <utility>

#include "base/durable_file.h"
#include "base/fd.h"
#include "base/signals_blocked.h"

namespace agent::task {

void write_status(const std::filesystem::path& attempt_folder, int rank, const protocol::RankStatus& status) {
  const auto path = protocol::rank_status_file(attempt_folder, static_cast<std::uint32_t>(rank));
  const auto folder = path.parent_path();
  std::filesystem::create_directories(folder);
  const base::Fd opened(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!opened) throw std::system_error(errno, std::generic_category(), folder.string());
  const auto draft = ".rank-" + std::to_string(rank) + "." + std::to_string(::getpid());
  base::replace_file_at(opened.get(), path.filename().string(), draft, to_text(status));
}

StatusFileWriter::StatusFileWriter(std::filesystem::path attempt_folder, int rank)
    : attempt_folder_(std::move(attempt_folder)), rank_(rank) {
  const base::SignalsBlocked quiet;
  thread_ = std::thread([this] { run(); });
}

void StatusFileWriter::put(const protocol::RankStatus& status) {
  {
    std::lock_guard lock(mutex_);
    next_ = status;
  }
  wake_.notify_all();
}

void StatusFileWriter::finish() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  wake_.notify_all();
  if (thread_.joinable()) thread_.join();
}

void StatusFileWriter::run() {
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

}  // namespace agent::task
