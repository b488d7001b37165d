#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <map>
#include <string>
#include <string_view>

namespace spec {

/// The longest line of a report file, with its newline.
inline constexpr std::size_t kMostReportLine = 64 << 10;

/// Keys of a report's line whose numbers are no series. muster/_run.py has the same list.
inline constexpr std::array<std::string_view, 10> kReportKeys{
    "step",  "at_ms",   "step_ms",     "memory_bytes", "memory_peak_bytes", "bytes_communicated",
    "bytes", "took_ms", "total_steps", "resumed"};

inline bool is_report_key(std::string_view key) {
  return std::ranges::find(kReportKeys, key) != kReportKeys.end();
}

/// Where an agent finds what a program tells of its training besides its report file: [report] of the job file.
struct ReportSources {
  std::string checkpoints;                 // a path whose names may have wildcards; empty: none
  std::map<std::string, std::string> log;  // names of series, or "step", and the pattern of each; see log_pattern.h
  std::string tensorboard;                 // a folder; empty: none
  bool empty() const { return checkpoints.empty() && log.empty() && tensorboard.empty(); }
  bool operator==(const ReportSources&) const = default;
};

// For both launch files, whose libraries' types differ in the order of keys. What an older musterd has not written is
// empty.
template <class Json>
void to_json(Json& json, const ReportSources& sources) {
  json = Json{{"checkpoints", sources.checkpoints}, {"log", sources.log}, {"tensorboard", sources.tensorboard}};
}
template <class Json>
void from_json(const Json& json, ReportSources& sources) {
  sources.checkpoints = json.value("checkpoints", std::string());
  sources.log = json.value("log", std::map<std::string, std::string>());
  sources.tensorboard = json.value("tensorboard", std::string());
}

}  // namespace spec
