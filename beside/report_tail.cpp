#include "beside/report_tail.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <variant>

#include "contract/report_keys.h"

namespace beside {
namespace {

/// Bytes of the file from `offset` on. Empty: there are none, or this is no regular file.
std::string bytes_of(const std::filesystem::path& file, std::uint64_t offset, std::size_t most) {
  const int fd = ::open(file.c_str(), O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  if (fd < 0) return {};
  std::string bytes;
  struct stat status {};
  if (::fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && static_cast<std::uint64_t>(status.st_size) > offset) {
    bytes.resize(std::min<std::uint64_t>(most, static_cast<std::uint64_t>(status.st_size) - offset));
    const auto count = ::pread(fd, bytes.data(), bytes.size(), static_cast<off_t>(offset));
    bytes.resize(count > 0 ? static_cast<std::size_t>(count) : 0);
  }
  ::close(fd);
  return bytes;
}

}  // namespace

std::vector<Report> ReportTail::read(bool ended) {
  const auto bytes = bytes_of(file_, offset_, kMostAtOnce);
  std::vector<Report> out;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const auto end = rest.find('\n');
    const bool whole = end != std::string_view::npos;
    if (!whole && rest.size() < contract::kMostReportLine && !(ended && bytes.size() < kMostAtOnce)) break;
    const auto line = rest.substr(0, end);
    const auto taken = whole ? end + 1 : rest.size();
    if (!skips_) take(line, out);
    skips_ = !whole;
    offset_ += taken;
    rest.remove_prefix(taken);
  }
  return out;
}

void ReportTail::take(std::string_view line, std::vector<Report>& out) {
  ++line_;
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
  auto parsed = parse_report(line);
  if (const auto* bad = std::get_if<BadLine>(&parsed)) return complain(bad->why);
  auto& report = std::get<Report>(parsed);
  if (!report.complaint.empty()) complain(report.complaint);
  out.push_back(std::move(report));
}

void ReportTail::complain(const std::string& why) {
  ++bad_lines_;
  if (!first_complaint_) first_complaint_ = "line " + std::to_string(line_) + ": " + why;
}

}  // namespace beside
