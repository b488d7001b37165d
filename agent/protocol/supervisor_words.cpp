#include "agent/protocol/supervisor_words.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <charconv>
#include <stdexcept>
#include <system_error>

namespace agent::protocol {
namespace {

using nlohmann::json;

json to_json(const Started& f) {
  json ranks = json::array();
  for (const auto& rank : f.ranks) ranks.push_back({{"pid", rank.pid}, {"start_time", rank.start_time}});
  return {{"fact", "started"}, {"boot_id", f.boot_id}, {"node", f.node}, {"session", f.session}, {"ranks", ranks}};
}
json to_json(const Running&) {
  return {{"fact", "running"}};
}
json to_json(const LaunchFailed& f) {
  return {{"fact", "launch_failed"}, {"reason", f.reason}, {"retryable", f.retryable}};
}
json to_json(const Exited& f) {
  return {{"fact", "exited"},
          {"rank", f.rank},
          {"code", f.exit.code},
          {"signal", f.exit.signal},
          {"out_of_memory", f.out_of_memory},
          {"at_ms", f.at_ms},
          {"error", f.error}};
}
json to_json(const Ended&) {
  return {{"fact", "ended"}};
}
json to_json(const Holds&) {
  return {{"fact", "holds"}};
}
json to_json(const Used& f) {
  json ranks = json::array();
  for (const auto& [rank, use] : f.ranks) {
    json one{{"rank", rank},
             {"at_ms", use.at_ms},
             {"memory_bytes", use.memory_bytes},
             {"memory_peak_bytes", use.memory_peak_bytes},
             {"processes", use.processes}};
    if (use.cores) one["cores"] = *use.cores;
    if (use.gpu_percent) one["gpu_percent"] = *use.gpu_percent;
    if (use.gpu_memory_bytes) one["gpu_memory_bytes"] = *use.gpu_memory_bytes;
    ranks.push_back(std::move(one));
  }
  return {{"fact", "used"}, {"ranks", ranks}};
}

Started started_from(const json& object) {
  Started f{object.at("boot_id"), object.at("node"), object.at("session"), {}};
  for (const auto& rank : object.at("ranks")) f.ranks.push_back({rank.at("pid"), rank.at("start_time")});
  return f;
}

template <typename Number>
std::optional<Number> number_at(const json& object, const char* key) {
  const auto found = object.find(key);
  return found == object.end() ? std::nullopt : std::optional(found->get<Number>());
}

Used used_from(const json& object) {
  Used f;
  for (const auto& one : object.at("ranks")) {
    f.ranks.emplace(one.at("rank"), RankUse{.at_ms = one.at("at_ms"),
                                            .cores = number_at<double>(one, "cores"),
                                            .memory_bytes = one.at("memory_bytes"),
                                            .memory_peak_bytes = one.at("memory_peak_bytes"),
                                            .processes = one.at("processes"),
                                            .gpu_percent = number_at<double>(one, "gpu_percent"),
                                            .gpu_memory_bytes = number_at<std::int64_t>(one, "gpu_memory_bytes")});
  }
  return f;
}

std::optional<Fact> fact_from(const json& object) {
  const auto kind = object.at("fact").get<std::string>();
  if (kind == "started") return started_from(object);
  if (kind == "running") return Running{};
  if (kind == "launch_failed") return LaunchFailed{object.at("reason"), object.at("retryable")};
  if (kind == "exited") {
    return Exited{object.at("rank"),
                  {object.at("code"), object.at("signal")},
                  object.at("out_of_memory"),
                  object.at("at_ms"),
                  object.value("error", "")};
  }
  if (kind == "ended") return Ended{};
  if (kind == "used") return used_from(object);
  if (kind == "holds") return Holds{};
  return std::nullopt;
}

}  // namespace

std::string to_line(const Fact& fact) {
  const auto object = std::visit([](const auto& f) { return to_json(f); }, fact);
  return object.dump(-1, ' ', false, json::error_handler_t::replace) + "\n";
}

std::optional<Fact> parse_fact(std::string_view line) {
  try {
    return fact_from(json::parse(line));
  } catch (const json::exception& error) {
    throw std::runtime_error(std::string(kStatusFile) + " holds a line that makes no sense: " + error.what());
  }
}

void fold(Status& status, const Fact& fact) {
  if (const auto* started = std::get_if<Started>(&fact)) status.started = *started;
  if (std::holds_alternative<Running>(fact)) status.running = true;
  if (const auto* failed = std::get_if<LaunchFailed>(&fact)) status.failed = *failed;
  if (const auto* exited = std::get_if<Exited>(&fact)) status.exits.emplace(exited->rank, *exited);
  if (std::holds_alternative<Ended>(fact)) status.ended = true;
}

Status parse_status(std::string_view text) {
  Status status;
  for (std::size_t begin = 0;;) {
    const auto end = text.find('\n', begin);
    if (end == std::string_view::npos) return status;
    if (const auto fact = parse_fact(text.substr(begin, end - begin))) fold(status, *fact);
    begin = end + 1;
  }
}

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
