#include "agent/protocol/start_report.h"

#include <algorithm>

#include "base/numbers.h"

namespace agent::protocol {
namespace {

constexpr std::string_view kPid = "pid ", kRunning = "running", kFailed = "failed ";

void take_line(StartReport& report, std::string_view line) {
  if (line.starts_with(kPid)) report.pid = base::whole_number<std::int64_t>(line.substr(kPid.size()));
  if (line == kRunning) report.running = true;
  // "failed 2 no room": a kind, a space, and a reason.
  if (!line.starts_with(kFailed) || line.size() < kFailed.size() + 3) return;
  const char kind = line[kFailed.size()];
  report.failure = kind >= '0' && kind <= '3' ? StartFailure{kind} : StartFailure::kMayPass;
  report.reason = line.substr(kFailed.size() + 2);
}

}  // namespace

std::string pid_line(std::int64_t pid) {
  return std::string(kPid) + std::to_string(pid) + "\n";
}

std::string running_line() {
  return std::string(kRunning) + "\n";
}

std::string failed_line(StartFailure kind, const std::string& reason) {
  auto line = std::string(kFailed) + static_cast<char>(kind) + " " + reason;
  std::ranges::replace(line, '\n', ' ');
  return line + "\n";
}

StartReport parse_start_report(std::string_view text) {
  StartReport report;
  for (auto end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    take_line(report, text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  return report;
}

}  // namespace agent::protocol
