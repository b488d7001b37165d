#include "worker/train/hooks/log_files.h"

#include <fcntl.h>
#include <unistd.h>

#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <utility>

#include "agent/rank/jsonl_reporter.h"
#include "base/durable_file.h"
#include "base/usage_error.h"
#include "worker/train/hooks/event_bytes.h"

namespace worker {
namespace {

constexpr const char* kLines = "metrics.jsonl";

std::string host_name() {
  char name[256] = "";
  ::gethostname(name, sizeof name - 1);
  return *name == 0 ? "localhost" : name;
}

/// The lines of steps up to `step`. Lines that are none of ours stay.
std::string kept_lines(const std::filesystem::path& file, std::int64_t step) {
  std::ifstream in(file);
  std::string kept;
  for (std::string line; std::getline(in, line);) {
    try {
      const auto json = fsdp::Json::parse(line);
      const auto* of_line = json.find("step");
      if (of_line != nullptr && of_line->is_int() && of_line->as_int() > step) continue;
    } catch (const fsdp::JsonError&) {
      continue;  // a line that a killed process left half written
    }
    kept += line + "\n";
  }
  return kept;
}

base::Fd append_to(const std::filesystem::path& file) {
  return base::Fd(::open(file.c_str(), O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
}

}  // namespace

LogFiles::LogFiles(std::filesystem::path folder, std::int64_t attempt, std::function<void(const std::string&)> say)
    : folder_(std::move(folder)), attempt_(attempt), say_(std::move(say)) {
  std::error_code error;
  std::filesystem::create_directories(folder_, error);
  if (error || ::access(folder_.c_str(), W_OK) != 0) {
    throw base::UsageError("train.log_folder = \"" + folder_.native() +
                           "\": " + (error ? error.message() : "no permission to write") +
                           "; want a folder that rank 0 can write, or leave it out");
  }
}

void LogFiles::began(std::int64_t step) {
  const auto now = static_cast<double>(agent::rank::now_ms()) / 1e3;
  const auto lines = folder_ / kLines;
  std::error_code error;
  if (std::filesystem::exists(lines, error)) base::write_file_durably(lines, kept_lines(lines, step), 0644);
  lines_ = append_to(lines);
  char begin[64];
  std::snprintf(begin, sizeof begin, "events.out.tfevents.%010lld.", static_cast<long long>(now));
  events_ = append_to(folder_ / (begin + host_name() + "." + std::to_string(attempt_)));
  write(events_, first_event(now));
}

void LogFiles::step(const agent::rank::StepReport& report, bool /*evaluated*/) {
  const double at = static_cast<double>(report.at_ms) / 1e3;
  fsdp::Json line;
  line["step"] = report.step;
  line["time"] = at;
  for (const auto& [series, value] : report.values) {
    line["values"][series] = std::isfinite(value) ? fsdp::Json(value) : fsdp::Json();
  }
  write(lines_, line.dump() + "\n");
  write(events_, scalar_event(at, report.step, report.values));
}

void LogFiles::write(const base::Fd& file, const std::string& bytes) {
  if (file && ::write(file.get(), bytes.data(), bytes.size()) == static_cast<ssize_t>(bytes.size())) return;
  if (std::exchange(warned_, true)) return;
  say_("warning: train.log_folder = \"" + folder_.native() + "\" takes no more lines (" + std::strerror(errno) +
       "); the training goes on without them");
}

}  // namespace worker
