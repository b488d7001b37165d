#include "controller/logs/log_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace logs {
namespace {

/// A regular file open for reading. ok() is false for anything else. Opening never blocks, not even on a FIFO.
class LogFile {
 public:
  explicit LogFile(const std::string& path) : fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
    struct stat info {};
    if (fd_ < 0 || ::fstat(fd_, &info) != 0 || !S_ISREG(info.st_mode)) return;
    ok_ = true;
    size_ = static_cast<std::uint64_t>(info.st_size);
  }
  ~LogFile() {
    if (fd_ >= 0) ::close(fd_);
  }
  LogFile(const LogFile&) = delete;
  LogFile& operator=(const LogFile&) = delete;

  bool ok() const { return ok_; }
  /// The size when the file was opened. The file may have grown since.
  std::uint64_t size() const { return size_; }

  /// Reads `count` bytes at `offset`. Returns fewer at the end of the file and after a read error.
  void read(std::uint64_t offset, std::size_t count, std::string& into) const {
    into.resize(count);
    std::size_t got = 0;
    while (got < count) {
      const auto n = ::pread(fd_, into.data() + got, count - got, static_cast<off_t>(offset + got));
      if (n < 0 && errno == EINTR) continue;
      if (n <= 0) break;
      got += static_cast<std::size_t>(n);
    }
    into.resize(got);
  }

 private:
  int fd_;
  bool ok_ = false;
  std::uint64_t size_ = 0;
};

std::uint64_t offset_of_last_lines(const LogFile& file, std::uint64_t lines) {
  std::uint64_t end = file.size();
  if (lines == 0) return end;
  std::string block;
  // A newline at the end of the file begins no new line.
  bool at_end = true;
  while (end > 0) {
    const std::uint64_t begin = end - std::min<std::uint64_t>(end, kChunkBytes);
    file.read(begin, static_cast<std::size_t>(end - begin), block);
    for (std::size_t i = block.size(); i-- > 0;) {
      const bool ends_the_file = at_end;
      at_end = false;
      if (block[i] != '\n' || ends_the_file) continue;
      if (--lines == 0) return begin + i + 1;
    }
    end = begin;
  }
  return 0;
}

}  // namespace

Piece read_from(const std::string& path, std::uint64_t offset, std::size_t max_bytes, bool finished) {
  Piece piece;
  piece.next_offset = offset;
  const LogFile file(path);
  if (!file.ok()) return piece;
  piece.exists = true;
  if (offset > file.size()) piece.next_offset = offset = 0;
  file.read(offset, std::min<std::uint64_t>(max_bytes, file.size() - offset), piece.text);
  const auto newline = piece.text.rfind('\n');
  if (newline != std::string::npos) {
    piece.text.resize(newline + 1);
  } else if (piece.text.size() < max_bytes && !finished) {
    piece.text.clear();
  }
  piece.next_offset = offset + piece.text.size();
  return piece;
}

std::uint64_t last_lines_offset(const std::string& path, std::uint64_t lines) {
  const LogFile file(path);
  return file.ok() ? offset_of_last_lines(file, lines) : 0;
}

LastLines read_last_lines(const std::string& path, std::uint64_t lines, std::size_t max_bytes, bool finished) {
  LastLines last;
  const LogFile file(path);
  if (!file.ok()) return last;
  last.exists = true;
  std::uint64_t begin = offset_of_last_lines(file, lines);
  if (file.size() - begin > max_bytes) {
    last.cut = true;
    begin = file.size() - max_bytes;
  }
  file.read(begin, static_cast<std::size_t>(file.size() - begin), last.text);
  if (!finished) {
    const auto newline = last.text.rfind('\n');
    const bool begins_a_long_line = newline == std::string::npos && last.text.size() >= max_bytes;
    if (!begins_a_long_line) last.text.resize(newline == std::string::npos ? 0 : newline + 1);
  }
  last.offset = begin + last.text.size();
  return last;
}

}  // namespace logs
