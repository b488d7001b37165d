#pragma once

#include <cstdint>
#include <filesystem>
#include <span>
#include <string>

namespace data::prepare {

/// A regular file, read in pieces. Not thread-safe; each thread opens its own.
class InputFile {
 public:
  /// Throws std::runtime_error "PATH: finding; remedy" for a file that is not there, is forbidden or is not a regular
  /// one, and std::system_error where the system refuses for another reason.
  explicit InputFile(const std::filesystem::path& path);
  ~InputFile();
  InputFile(const InputFile&) = delete;
  InputFile& operator=(const InputFile&) = delete;

  std::int64_t bytes() const { return bytes_; }
  /// Changes whenever the content may have changed: size and time of the last change.
  const std::string& state() const { return state_; }

  /// Reads from `offset` on, as much as `out` holds; fewer bytes at the end of the file. Throws std::system_error.
  std::size_t read(std::int64_t offset, std::span<char> out) const;

  /// The whole file. Throws std::runtime_error if it has more than `most` bytes.
  std::string read_all(std::int64_t most) const;

 private:
  std::filesystem::path path_;
  int fd_ = -1;
  std::int64_t bytes_ = 0;
  std::string state_;
};

}  // namespace data::prepare
