#include "cli/debug_reports.h"

#include <map>
#include <optional>
#include <sstream>

#include "agent/watch/report_tail.h"
#include "controller/core/text.h"

namespace cli {
namespace {

/// More would hide the rest of the line.
constexpr std::size_t kMostValues = 8;

struct Reported {
  std::uint64_t steps = 0;
  std::optional<std::int64_t> newest_step, total_steps;
  std::map<std::string, double> values;  // the newest of each series
  std::optional<agent::watch::ReportedCheckpoint> checkpoint;
  std::optional<agent::watch::ReportedError> error;

  void take(const agent::watch::Report& report) {
    if (report.total_steps) total_steps = report.total_steps;
    if (report.checkpoint) checkpoint = report.checkpoint;
    if (report.step) {
      ++steps;
      newest_step = report.step->step;
      error.reset();  // the program went on after it
      for (const auto& [name, value] : report.step->values) values[name] = value;
    }
    if (report.error) error = report.error;
  }
};

std::string steps_line(const Reported& all) {
  std::ostringstream out;
  out << "reported " << core::count_text(all.steps, "step") << ", the newest " << *all.newest_step;
  if (all.total_steps) out << " of " << *all.total_steps;
  std::size_t shown = 0;
  for (const auto& [name, value] : all.values) {
    if (shown++ == kMostValues) break;
    out << (shown == 1 ? ": " : ", ") << name << " " << value;
  }
  if (all.values.size() > kMostValues) out << " and " << all.values.size() - kMostValues << " more";
  return out.str();
}

}  // namespace

std::string what_was_reported(const std::filesystem::path& report_file, std::uint32_t rank) {
  agent::watch::ReportTail tail(report_file);
  Reported all;
  for (bool more = true; more;) {
    const auto found = tail.read(true);
    more = found.more;
    for (const auto& report : found.reports) all.take(report);
  }
  const auto line = [&](const std::string& text) { return "muster: rank " + std::to_string(rank) + " " + text + "\n"; };
  std::string out;
  if (all.steps > 0) out += line(steps_line(all));
  if (all.checkpoint) {
    out += line("reported a checkpoint of step " + std::to_string(all.checkpoint->step) + ": " + all.checkpoint->path);
  }
  if (all.error) out += line("reported an error: " + core::error_text(all.error->type, all.error->message));
  if (tail.bad_lines() > 0) {
    out += line("wrote " + core::count_text(tail.bad_lines(), "line") +
                " into its report file that cannot be read, or only in part; the first: " + *tail.first_complaint());
  }
  return out;
}

}  // namespace cli
