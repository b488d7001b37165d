#include "data/prepare/text/text_source.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <stdexcept>
#include <system_error>

namespace data::prepare {

ItemRange items_of_part(std::int64_t part, std::int64_t items, std::int64_t items_a_part) {
  const auto parts = parts_of(items, items_a_part);
  if (part < 0 || part >= parts) {
    throw std::out_of_range("part " + std::to_string(part) + ": the source has " + std::to_string(parts) + " parts");
  }
  return {part * items_a_part, std::min(items, (part + 1) * items_a_part)};
}

void check_range(std::string_view what, std::int64_t value, std::int64_t least, std::int64_t most) {
  if (value >= least && value <= most) return;
  throw std::runtime_error(std::string(what) + " = " + std::to_string(value) + ": want " + std::to_string(least) +
                           " to " + std::to_string(most));
}

std::string one_line(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == ' ' || c == '\t' || c == '\n' || c == '\r') {
      if (!out.empty() && out.back() != ' ') out += ' ';
    } else {
      out += c;
    }
  }
  if (out.ends_with(' ')) out.pop_back();
  return out;
}

std::string_view cut_text(std::string_view text, std::size_t bytes) {
  if (text.size() <= bytes) return text;
  std::size_t end = bytes;
  for (int back = 0; back < 3 && end > 0 && (static_cast<std::uint8_t>(text[end]) & 0xc0) == 0x80; ++back) --end;
  return text.substr(0, end);
}

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
