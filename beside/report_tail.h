#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "beside/report.h"

namespace beside {

/// Follows a report file from a remembered place on. It reads regular files alone, and waits as long as their file
/// system does.
class ReportTail {
 public:
  /// Where a reader has come to. A reader that begins there reads the next line.
  struct Place {
    std::uint64_t offset = 0;  // bytes
    std::uint64_t steps = 0;   // lines with a step before it; each has the number of those before it
    std::uint64_t checkpoints = 0;
    std::uint64_t bad = 0;  // lines that could not be read, or only in part
  };

  explicit ReportTail(std::filesystem::path file) : file_(std::move(file)) {}
  ReportTail(std::filesystem::path file, const Place& from) : file_(std::move(file)), place_(from) {}

  /// The next lines that are whole, at most kMostAtOnce bytes of them. With `ended`, when the program has ended, a last
  /// line without its newline counts too. Empty: there is no more now.
  std::vector<Report> read(bool ended = false);

  const Place& place() const { return place_; }
  /// What was wrong with the first bad line, with its number from the place where this reader began; nullopt: none was.
  const std::optional<std::string>& first_complaint() const { return first_complaint_; }

  static constexpr std::size_t kMostAtOnce = 1 << 20;

 private:
  void take(std::string_view line, std::vector<Report>& out);
  void complain(const std::string& why);

  const std::filesystem::path file_;
  Place place_;
  bool skips_ = false;  // the place is inside a line that is too long
  std::uint64_t line_ = 0;
  std::optional<std::string> first_complaint_;
};

}  // namespace beside
