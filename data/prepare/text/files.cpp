#include "data/prepare/text/files.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace data::prepare {
namespace {

[[noreturn]] void refuse(const std::filesystem::path& path, const std::string& finding) {
  throw std::runtime_error(path.native() + ": " + finding);
}

}  // namespace

InputFile::InputFile(const std::filesystem::path& path)
    : path_(path), fd_(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)) {
  if (fd_ < 0) {
    for (const int wrong : {ENOENT, ENOTDIR, EACCES, ELOOP, ENAMETOOLONG}) {
      if (errno != wrong) continue;
      refuse(path,
             std::string("cannot be opened: ") + std::strerror(wrong) + "; name a file that exists and can be read");
    }
    throw std::system_error(errno, std::generic_category(), path.native() + ": cannot be opened");
  }
  struct stat status {};
  if (::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
    ::close(fd_);
    refuse(path, "is not a regular file; name a file");
  }
  bytes_ = status.st_size;
  state_ = std::to_string(status.st_size) + ":" + std::to_string(status.st_mtim.tv_sec) + "." +
           std::to_string(status.st_mtim.tv_nsec) + ":" + std::to_string(status.st_ctim.tv_sec) + "." +
           std::to_string(status.st_ctim.tv_nsec);
}

InputFile::~InputFile() {
  ::close(fd_);
}

std::size_t InputFile::read(std::int64_t offset, std::span<char> out) const {
  std::size_t have = 0;
  while (have < out.size()) {
    const auto got = ::pread(fd_, out.data() + have, out.size() - have, offset + static_cast<std::int64_t>(have));
    if (got < 0 && errno == EINTR) continue;
    if (got < 0) {
      throw std::system_error(
          errno, std::generic_category(),
          path_.native() + ": cannot be read at byte " + std::to_string(offset + static_cast<std::int64_t>(have)));
    }
    if (got == 0) break;
    have += static_cast<std::size_t>(got);
  }
  return have;
}

std::string InputFile::read_all(std::int64_t most) const {
  if (bytes_ > most) {
    refuse(path_, "has " + std::to_string(bytes_) + " bytes, and at most " + std::to_string(most) +
                      " are read; name a smaller file");
  }
  std::string text(static_cast<std::size_t>(bytes_), '\0');
  text.resize(read(0, text));
  return text;
}

}  // namespace data::prepare
