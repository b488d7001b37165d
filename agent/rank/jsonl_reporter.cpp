#include "agent/rank/jsonl_reporter.h"

#include <fcntl.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <set>
#include <stdexcept>

#include "spec/report_keys.h"

namespace agent::rank {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += {'\\', c};
    } else if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", c);
      out += escape;
    } else {
      out += c;
    }
  }
  return out + "\"";
}

/// The shortest text that reads back as the same double; null where JSON has no word for the value.
std::string number(double value) {
  if (!std::isfinite(value)) return "null";
  char text[32];
  std::snprintf(text, sizeof text, "%.17g", value);
  return text;
}

std::string field(std::string_view key, const std::string& value) {
  return "," + quoted(key) + ":" + value;
}
std::string field(std::string_view key, double value) {
  return field(key, number(value));
}
std::string field(std::string_view key, std::int64_t value) {
  return field(key, std::to_string(value));
}

/// The values of a step, each under a key of its own.
std::string values_of(const StepReport& report) {
  std::set<std::string> taken(spec::kReportKeys.begin(), spec::kReportKeys.end());
  std::string fields;
  for (const auto& value : report.values) {
    std::string key = value.series;
    while (!taken.insert(key).second) key.insert(0, "series/");
    fields += field(key, value.value);
  }
  return fields;
}

}  // namespace

std::string_view to_string(Section section) {
  constexpr std::array<std::string_view, 6> kNames{"init", "data", "step", "checkpoint", "done", "evaluate"};
  static_assert(static_cast<std::size_t>(Section::kEvaluate) + 1 == kNames.size());
  return kNames.at(static_cast<std::size_t>(section));
}

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

JsonlReporter::JsonlReporter(const std::string& path, std::optional<Endpoint> master)
    : path_(path), master_(std::move(master)) {
  fd_ = ::open(path.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
  if (fd_ < 0) {
    throw std::runtime_error("cannot open the metrics file " + path + ": " + std::strerror(errno) +
                             "; set MUSTER_METRICS_FILE to a writable path");
  }
}

JsonlReporter::~JsonlReporter() {
  ::close(fd_);
}

void JsonlReporter::write_line(const std::string& fields) {
  const std::string line = "{" + fields + "}\n";
  if (::write(fd_, line.data(), line.size()) == static_cast<ssize_t>(line.size()) || warned_) return;
  warned_ = true;
  std::fprintf(stderr, "warning: metrics are being lost: cannot write %s: %s\n", path_.c_str(), std::strerror(errno));
}

void JsonlReporter::write_fact(const std::string& fields) {
  write_line(fields + field("at_ms", now_ms()));
}

void JsonlReporter::declare(std::vector<spec::Series> series) {
  std::string all;
  for (const auto& one : series) {
    all += (all.empty() ? "" : ",") + quoted(one.name) + ":{\"unit\":" + quoted(one.unit) +
           field("better", quoted(spec::to_string(one.better))) +
           field("over_ranks", quoted(spec::to_string(one.over_ranks))) + "}";
  }
  write_fact("\"series\":{" + all + "}");
}

void JsonlReporter::section(Section now) {
  write_fact("\"section\":" + quoted(to_string(now)));
}

void JsonlReporter::step(const StepReport& r) {
  write_line("\"step\":" + std::to_string(r.step) + values_of(r) + field("step_ms", r.step_ms) +
             field("memory_bytes", r.memory_bytes) + field("memory_peak_bytes", r.memory_peak_bytes) +
             field("bytes_communicated", r.bytes_communicated) + field("at_ms", r.at_ms));
}

void JsonlReporter::resumed_from(std::int64_t step) {
  write_fact("\"resumed\":" + std::to_string(step));
}

void JsonlReporter::checkpoint_saved(std::int64_t step, std::int64_t bytes, double ms) {
  char name[32];
  std::snprintf(name, sizeof name, "step-%08lld", static_cast<long long>(step));  // its folder, see fsdp
  write_fact("\"checkpoint\":" + quoted(name) + field("step", step) + field("bytes", bytes) + field("took_ms", ms));
}

Endpoint JsonlReporter::rendezvous(std::optional<Endpoint> mine) {
  if (mine) return *mine;
  if (master_) return *master_;
  throw std::runtime_error("no rendezvous address: set MASTER_ADDR and MASTER_PORT to rank 0's address");
}

void JsonlReporter::leaving(int exit_code, std::string_view reason) {
  std::string text = "leaving with exit code " + std::to_string(exit_code);
  if (!reason.empty()) text.append(": ").append(reason);
  write_fact("\"status\":" + quoted(text));
}

}  // namespace agent::rank
