#include "agent/protocol/supervisor_words.h"

#include <algorithm>
#include <charconv>
#include <system_error>

namespace agent::protocol {
namespace {

constexpr std::string_view kPid = "pid ", kRunning = "running", kFailed = "failed ";
constexpr std::string_view kStop = "stop ", kWhy = "why ", kSave = " save", kAt = "at ", kStacks = "stacks ";

std::optional<std::int64_t> number(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc() && end == text.data() + text.size() ? std::optional(value) : std::nullopt;
}

void take_line(StartReport& report, std::string_view line) {
  if (line.starts_with(kPid)) report.pid = number(line.substr(kPid.size()));
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

std::string to_lines(const StopCommand& command) {
  std::string lines;
  if (command.at_step) lines = std::string(kAt) + std::to_string(*command.at_step) + "\n";
  if (!command.why.empty()) lines += std::string(kWhy) + command.why + (command.save ? std::string(kSave) : "") + "\n";
  return lines + std::string(kStop) + std::to_string(command.grace.count()) + "\n";
}

std::string stacks_line(std::uint64_t stacks_number) {
  return std::string(kStacks) + std::to_string(stacks_number) + "\n";
}

std::optional<std::uint64_t> parse_stacks_line(std::string_view line) {
  if (!line.starts_with(kStacks)) return std::nullopt;
  const auto value = number(line.substr(kStacks.size()));
  return value && *value > 0 ? std::optional(static_cast<std::uint64_t>(*value)) : std::nullopt;
}

std::optional<StopCommand> StopReader::take(std::string_view line) {
  if (line.starts_with(kWhy) && command_.why.empty()) {
    line.remove_prefix(kWhy.size());
    command_.save = line.ends_with(kSave);
    if (command_.save) line.remove_suffix(kSave.size());
    command_.why = line;
    return std::nullopt;
  }
  // It belongs to the reason that follows.
  if (line.starts_with(kAt) && command_.why.empty()) command_.at_step = number(line.substr(kAt.size()));
  if (!line.starts_with(kStop)) return std::nullopt;
  const auto grace = number(line.substr(kStop.size()));
  if (!grace) return std::nullopt;
  command_.grace = std::chrono::milliseconds(std::max<std::int64_t>(*grace, 0));
  return command_;
}

}  // namespace agent::protocol
