#include "store/clean_end.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <string>
#include <thread>

namespace store {
namespace {

/// Modification times have a resolution of up to 4 ms. Two changes within one tick have the same time.
constexpr std::chrono::milliseconds kTick{5};

/// Size, inode and modification time; empty: there is no such file.
std::string state_of(const std::filesystem::path& file) {
  struct stat found {};
  if (::stat(file.c_str(), &found) != 0) return {};
  return std::to_string(found.st_size) + " " + std::to_string(found.st_ino) + " " +
         std::to_string(found.st_mtim.tv_sec) + "." + std::to_string(found.st_mtim.tv_nsec) + "\n";
}

std::string read_small(const std::filesystem::path& file) {
  const int descriptor = ::open(file.c_str(), O_RDONLY | O_CLOEXEC);
  if (descriptor < 0) return {};
  std::array<char, 256> text{};
  const auto got = ::read(descriptor, text.data(), text.size());
  ::close(descriptor);
  return got > 0 ? std::string(text.data(), static_cast<std::size_t>(got)) : std::string();
}

}  // namespace

CleanEnd::CleanEnd(std::filesystem::path database)
    : database_(std::move(database)), mark_(database_.string() + ".clean") {}

bool CleanEnd::is_known() const {
  const auto state = state_of(database_);
  return !state.empty() && read_small(mark_) == state && state_of(database_.string() + "-wal").empty();
}

// A power failure may bring the mark back. It is invalid then: the database has a log file, or has changed.
void CleanEnd::begin() {
  ::unlink(mark_.c_str());
  begun_ = true;
}

CleanEnd::~CleanEnd() {
  if (!begun_ || doubted_ || !state_of(database_.string() + "-wal").empty()) return;
  std::this_thread::sleep_for(kTick);
  const auto state = state_of(database_);
  const int descriptor = ::open(mark_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  if (descriptor < 0) return;
  const bool whole = ::write(descriptor, state.data(), state.size()) == static_cast<ssize_t>(state.size());
  ::close(descriptor);
  if (!whole) ::unlink(mark_.c_str());
}

}  // namespace store
