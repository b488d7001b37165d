#include "store/clean_end.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <iterator>
#include <string>
#include <thread>

#include "os/fd.h"

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
  std::ifstream in(file, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
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
  const os::Fd mark(::open(mark_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!mark) return;
  const bool whole = ::write(mark.get(), state.data(), state.size()) == static_cast<ssize_t>(state.size());
  if (!whole) ::unlink(mark_.c_str());
}

}  // namespace store
