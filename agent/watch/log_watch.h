#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "agent/watch/log_reports.h"
#include "agent/watch/plain_lines.h"
#include "agent/watch/report_source.h"
#include "agent/watch/step_pace.h"

namespace agent::watch {

/// Follows a rank's log and reports what patterns find in it. All of it is read, in pieces: what a look leaves waits in
/// the file for the next one.
class LogWatch : public ReportSource {
 public:
  LogWatch(std::filesystem::path file, const std::map<std::string, std::string>& patterns);

  Found look(const Moment& moment) override;
  std::string unread() const override;

  static constexpr std::size_t kMostAtOnce = 512 << 10;

 private:
  void begin_anew();
  void set_times(std::vector<Report>& reports, std::int64_t now_ms) const;
  void set_pace(std::vector<Report>& reports, std::int64_t now_ms);

  const std::filesystem::path file_;
  PlainLines lines_;
  LogReports reports_;
  StepPace pace_;
  std::uint64_t offset_ = 0;
  std::atomic<std::uint64_t> unread_bytes_ = 0;
  std::int64_t last_look_ms_ = 0;  // 0: there was none
};

}  // namespace agent::watch
