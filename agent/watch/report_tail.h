#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "agent/watch/report_source.h"

namespace agent::watch {

/// Follows a report file. It reads regular files alone, and waits as long as their file system does.
class ReportTail {
 public:
  explicit ReportTail(std::filesystem::path file) : file_(std::move(file)) {}

  /// The next lines that are whole, at most kMostAtOnce bytes of them. With `ended`, when the program has ended, a last
  /// line without its newline counts too. Without `more` there is no more now; with it, lines may have been read that
  /// hold no report.
  Found read(bool ended = false);

  /// Before the first read: begins with the first line that begins after so many bytes. Lines are then counted from
  /// there.
  void skip_to(std::uint64_t offset) {
    offset_ = offset;
    skips_ = true;
  }
  /// Bytes read so far.
  std::uint64_t offset() const { return offset_; }
  /// Lines that could not be read, or only in part.
  std::uint64_t bad_lines() const { return bad_lines_; }
  /// What was wrong with the first of them, with its number; nullopt: none was.
  const std::optional<std::string>& first_complaint() const { return first_complaint_; }

  static constexpr std::size_t kMostAtOnce = 1 << 20;

 private:
  void take(std::string_view line, std::vector<Report>& out);
  void complain(const std::string& why);

  const std::filesystem::path file_;
  std::uint64_t offset_ = 0, line_ = 0, bad_lines_ = 0;
  bool skips_ = false;  // the offset is inside a line that is too long
  std::optional<std::string> first_complaint_;
};

}  // namespace agent::watch
