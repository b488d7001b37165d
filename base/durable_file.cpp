#include "base/durable_file.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/stat.h>
#include <unistd.h>

#include <atomic>
#include <charconv>
#include <stdexcept>
#include <system_error>
#include <vector>

#include "base/fd.h"

namespace base {
namespace {

[[noreturn]] void fail(const char* what, const std::filesystem::path& path, int error) {
  throw std::system_error(error, std::generic_category(), std::string(what) + " " + path.string());
}

void write_all(int fd, std::string_view text, const std::filesystem::path& path) {
  while (!text.empty()) {
    const ssize_t wrote = ::write(fd, text.data(), text.size());
    if (wrote < 0 && errno == EINTR) continue;
    if (wrote < 0) fail("cannot write", path, errno);
    text.remove_prefix(static_cast<std::size_t>(wrote));
  }
  if (::fsync(fd) != 0) fail("cannot sync", path, errno);
}

// A new file with exactly this mode, whatever the umask; removed again if it cannot be filled. Failures name `path`,
// which is what people know.
void create_filled(const std::filesystem::path& file, std::string_view text, unsigned mode,
                   const std::filesystem::path& path) {
  const Fd fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode));
  if (!fd) fail("cannot create", path, errno);
  try {
    if (::fchmod(fd.get(), mode) != 0) fail("cannot set the mode of", path, errno);
    write_all(fd.get(), text, path);
  } catch (const std::system_error&) {
    ::unlink(file.c_str());
    throw;
  }
}

constexpr std::string_view kTemporaryMark = ".tmp.";

// A file beside `path` with these contents. Its name is unique within the machine, so that two writers never share one.
std::filesystem::path create_temporary(const std::filesystem::path& path, std::string_view text, unsigned mode) {
  static std::atomic<unsigned> counter{0};
  auto temporary = path;
  temporary += std::string(kTemporaryMark) + std::to_string(::getpid()) + "." + std::to_string(counter++);
  ::unlink(temporary.c_str());  // left by a crash of an earlier process with our pid
  create_filled(temporary, text, mode, path);
  return temporary;
}

// Removes the files that killed writers of `path` left. Never fails: such files only take room.
void remove_leftovers(const std::filesystem::path& path) {
  const std::string start = path.filename().string() + std::string(kTemporaryMark);
  std::error_code ignored;
  std::vector<std::filesystem::path> dead;
  for (std::filesystem::directory_iterator entry(path.parent_path(), ignored), end; !ignored && entry != end;
       entry.increment(ignored)) {
    const std::string name = entry->path().filename().string();
    if (!name.starts_with(start)) continue;
    ::pid_t writer = 0;
    const auto read = std::from_chars(name.data() + start.size(), name.data() + name.size(), writer);
    if (read.ec == std::errc() && writer > 0 && ::kill(writer, 0) != 0 && errno == ESRCH) dead.push_back(entry->path());
  }
  for (const auto& temporary : dead) ::unlink(temporary.c_str());
}

}  // namespace

void sync_folder(const std::filesystem::path& folder) {
  const Fd fd(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!fd || ::fsync(fd.get()) != 0) fail("cannot sync", folder, errno);
}

void write_file_durably(const std::filesystem::path& path, std::string_view text, unsigned mode) {
  const auto temporary = create_temporary(path, text, mode);
  if (::rename(temporary.c_str(), path.c_str()) != 0) {
    const int error = errno;
    ::unlink(temporary.c_str());
    fail("cannot replace", path, error);
  }
  sync_folder(path.parent_path());
}

void replace_file_at(int folder, const std::string& name, const std::string& temporary, std::string_view text) {
  const Fd fd(::openat(folder, temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600));
  if (!fd) fail("cannot create", temporary, errno);
  write_all(fd.get(), text, temporary);
  if (::renameat(folder, temporary.c_str(), folder, name.c_str()) != 0) fail("cannot replace", name, errno);
  if (::fsync(folder) != 0) fail("cannot sync the folder of", name, errno);
}

void create_file_durably(const std::filesystem::path& path, std::string_view text, unsigned mode) {
  // Asked first, so that finding it takes no room on a full disk.
  struct stat there {};
  if (::lstat(path.c_str(), &there) == 0) fail("cannot create", path, EEXIST);
  remove_leftovers(path);
  const auto temporary = create_temporary(path, text, mode);
  const int error = ::link(temporary.c_str(), path.c_str()) == 0 ? 0 : errno;
  ::unlink(temporary.c_str());
  if (error != 0) fail("cannot create", path, error);
  sync_folder(path.parent_path());
}

std::string read_small_file(const std::filesystem::path& path, std::size_t max_bytes, std::uintmax_t offset) {
  const Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) {
    if (errno == ENOENT || errno == ENOTDIR) return {};
    fail("cannot open", path, errno);
  }
  std::string text(max_bytes, '\0');
  std::size_t length = 0;
  while (length < max_bytes) {
    const ssize_t got =
        ::pread(fd.get(), text.data() + length, max_bytes - length, static_cast<off_t>(offset + length));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) fail("cannot read", path, errno);
    if (got == 0) break;
    length += static_cast<std::size_t>(got);
  }
  text.resize(length);
  return text;
}

std::string read_whole_file(const std::filesystem::path& path, std::uintmax_t max_bytes) {
  std::error_code error;
  if (!std::filesystem::is_regular_file(path, error))
    throw std::runtime_error(path.string() + ": not a file that can be read");
  const std::uintmax_t bytes = std::filesystem::file_size(path, error);
  if (error) throw std::runtime_error(path.string() + ": " + error.message());
  if (bytes > max_bytes) {
    throw std::runtime_error(path.string() + ": " + std::to_string(bytes) + " bytes, more than the " +
                             std::to_string(max_bytes) + " that such a file may have");
  }
  std::string text = read_small_file(path, bytes);
  if (text.size() != bytes) throw std::runtime_error(path.string() + ": became shorter while it was read; try again");
  return text;
}

void make_folders(const std::filesystem::path& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail("cannot create the folder", path, error.value());
}

void make_private_folder(const std::filesystem::path& path) {
  make_folders(path);
  struct stat info {};
  const bool open = ::stat(path.c_str(), &info) == 0 && (info.st_mode & 07) != 0;
  // Another's folder, a file system without modes: that costs no launch.
  if (open) [[maybe_unused]]
    const int closed = ::chmod(path.c_str(), info.st_mode & 07770);
}

}  // namespace base
