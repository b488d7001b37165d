#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
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

}  // namespace spec
