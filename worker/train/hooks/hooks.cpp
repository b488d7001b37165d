#include "worker/train/hooks/hooks.h"

#include <fcntl.h>
#include <unistd.h>

#include <bit>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <utility>

#include "agent/rank/jsonl_reporter.h"
#include "base/checksum.h"
#include "base/durable_file.h"
#include "base/usage_error.h"
#include "worker/train/step_measures.h"

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

// Event files of TensorBoard: events in protobuf's wire format.

static_assert(std::endian::native == std::endian::little, "records are little endian");

template <class Number>
void add_bytes(std::string& out, Number number) {
  char bytes[sizeof number];
  std::memcpy(bytes, &number, sizeof number);
  out.append(bytes, sizeof number);
}

void add_varint(std::string& out, std::uint64_t number) {
  for (; number >= 0x80; number >>= 7) out.push_back(static_cast<char>(number | 0x80));
  out.push_back(static_cast<char>(number));
}

// The types of fields on the wire.
enum class Wire { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

void add_tag(std::string& out, int field, Wire type) {
  add_varint(out, static_cast<std::uint64_t>(field) << 3 | static_cast<std::uint64_t>(type));
}

void add_text(std::string& out, int field, const std::string& text) {
  add_tag(out, field, Wire::kBytes);
  add_varint(out, text.size());
  out += text;
}

// Numbers of fields: Event{wall_time, step, file_version, summary}, Summary{value}, Value{tag, simple_value}.
constexpr int kWallTime = 1, kStep = 2, kFileVersion = 3, kSummary = 5, kValue = 1, kTag = 1, kSimpleValue = 2;

std::string event_at(double at_s) {
  std::string event;
  add_tag(event, kWallTime, Wire::kFixed64);
  add_bytes(event, at_s);
  return event;
}

std::string record(const std::string& event) {
  std::string length, out;
  add_bytes(length, static_cast<std::uint64_t>(event.size()));
  out = length;
  add_bytes(out, base::masked_crc32c(length));
  out += event;
  add_bytes(out, base::masked_crc32c(event));
  return out;
}

/// The record that begins an event file of TensorBoard. `at_s`: Unix time in seconds.
std::string first_event(double at_s) {
  std::string event = event_at(at_s);
  add_text(event, kFileVersion, "brain.Event:2");
  return record(event);
}

/// The record of a step's values: a tensorflow.Event in protobuf's wire format, in a TFRecord. Values are fp32 there.
std::string scalar_event(double at_s, std::int64_t step, const std::vector<agent::rank::SeriesValue>& values) {
  std::string event = event_at(at_s), summary;
  add_tag(event, kStep, Wire::kVarint);
  add_varint(event, static_cast<std::uint64_t>(step));
  for (const auto& [series, value] : values) {
    std::string one;
    add_text(one, kTag, series);
    add_tag(one, kSimpleValue, Wire::kFixed32);
    add_bytes(one, static_cast<float>(value));
    add_text(summary, kValue, one);
  }
  add_text(event, kSummary, summary);
  return record(event);
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

Progress::Progress(Options options) : options_(std::move(options)) {}

void Progress::step(const agent::rank::StepReport& report, bool /*evaluated*/) {
  const auto now = options_.now();
  if (first_ < 0) {
    first_ = report.step;
    began_ = said_ = now;
    return;
  }
  if (now - said_ < kPause || report.step >= options_.steps) return;
  said_ = now;
  const double each = std::chrono::duration<double>(now - began_).count() / static_cast<double>(report.step - first_);
  const auto left = static_cast<double>(options_.steps - report.step) * each;
  char text[128];
  std::snprintf(text, sizeof text, "%.0f %% of %lld steps, epoch %.2f, about ",
                100.0 * static_cast<double>(report.step) / static_cast<double>(options_.steps),
                static_cast<long long>(options_.steps), static_cast<double>(report.step) * options_.epochs_a_step);
  options_.say(text + time_text(std::chrono::seconds(static_cast<std::int64_t>(left))) + " left");
}

std::string time_text(std::chrono::seconds time) {
  constexpr std::int64_t kMinute = 60, kHour = 3600;
  const std::int64_t s = time.count();
  char text[48];
  if (s < kMinute) {
    std::snprintf(text, sizeof text, "%llds", static_cast<long long>(s));
  } else if (s < kHour) {
    std::snprintf(text, sizeof text, "%lldm%02llds", static_cast<long long>(s / kMinute),
                  static_cast<long long>(s % kMinute));
  } else {
    std::snprintf(text, sizeof text, "%lldh%02lldm", static_cast<long long>(s / kHour),
                  static_cast<long long>(s % kHour / kMinute));
  }
  return text;
}

EarlyStop::EarlyStop(spec::Series series, std::int64_t patience, double least)
    : series_(std::move(series)), patience_(patience), least_(least) {}

void EarlyStop::step(const agent::rank::StepReport& report, bool evaluated) {
  const auto value = evaluated ? value_of(report.values, series_.name) : std::nullopt;
  if (!value) return;
  const double by = !best_ ? 0 : series_.better == spec::Better::kHigher ? *value - *best_ : *best_ - *value;
  if (std::isfinite(*value) && (!best_ || by > least_)) {
    best_ = *value;
    best_step_ = report.step;
    without_ = 0;
  } else {
    ++without_;
  }
}

std::string EarlyStop::wants_stop() const {
  if (without_ < patience_) return {};
  char text[160];
  if (!best_) {
    std::snprintf(text, sizeof text, "%lld validation%s found no value", static_cast<long long>(without_),
                  without_ == 1 ? " has" : "s have");
  } else {
    char by[40] = "";
    if (least_ > 0) std::snprintf(by, sizeof by, "more than %.6g ", least_);
    std::snprintf(text, sizeof text, "%lld validation%s found nothing %sbetter than %.6g at step %lld",
                  static_cast<long long>(without_), without_ == 1 ? " has" : "s in a row have", by, *best_,
                  static_cast<long long>(best_step_));
  }
  return "stopped early: " + std::string(text) + " (" + series_.name + ")";
}

void EarlyStop::save(fsdp::Json& extra) const {
  fsdp::Json& own = extra["early_stop"];
  own["series"] = series_.name;
  own["without"] = without_;
  if (!best_) return;
  own["best"] = *best_;
  own["step"] = best_step_;
}

/// The count of another series begins anew.
void EarlyStop::load(const fsdp::Json& extra) {
  const fsdp::Json* own = extra.find("early_stop");
  if (own == nullptr || own->at("series").as_string() != series_.name) return;
  without_ = own->at("without").as_int();
  if (const fsdp::Json* best = own->find("best")) {
    best_ = best->as_double();
    best_step_ = own->at("step").as_int();
  }
}

}  // namespace worker
