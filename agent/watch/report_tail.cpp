#include "agent/watch/report_tail.h"

#include <variant>

#include "agent/watch/regular_file.h"
#include "spec/report_keys.h"

namespace agent::watch {
Found ReportTail::read(bool ended) {
  const auto bytes = read_part(file_, offset_, kMostAtOnce).bytes;
  Found out;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const auto end = rest.find('\n');
    const bool whole = end != std::string_view::npos;
    if (!whole && rest.size() < spec::kMostReportLine && !(ended && bytes.size() < kMostAtOnce)) break;
    const auto line = rest.substr(0, end);
    const auto taken = whole ? end + 1 : rest.size();
    if (!skips_) take(line, out.reports);
    skips_ = !whole;
    offset_ += taken;
    rest.remove_prefix(taken);
    out.more = true;
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

}  // namespace agent::watch
