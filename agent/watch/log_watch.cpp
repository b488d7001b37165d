#include "agent/watch/log_watch.h"

#include <algorithm>
#include <utility>

#include "agent/watch/folder_walk.h"

namespace agent::watch {

LogWatch::LogWatch(std::filesystem::path file, const std::map<std::string, std::string>& patterns)
    : file_(std::move(file)), reports_(patterns) {}

Found LogWatch::look(const Moment& moment) {
  auto part = read_part(file_, offset_, kMostAtOnce);
  if (part.size < offset_) begin_anew();  // somebody has emptied it
  Found found;
  const auto take = [&](std::string_view line) {
    if (auto report = reports_.take(line)) found.reports.push_back(std::move(*report));
  };
  lines_.feed(part.bytes, take);
  offset_ += part.bytes.size();
  unread_bytes_ = part.size - std::min(part.size, offset_);
  found.more = !part.bytes.empty() && offset_ < part.size;
  if (moment.end && !found.more) lines_.finish(take);
  if (!reports_.first_complaint().empty()) complain(reports_.first_complaint());
  if (moment.end && !found.more && !reports_.unmatched().empty()) {
    complain(std::string(spec::kNothingMatches) + reports_.unmatched());
  }
  set_times(found.reports, moment.wall_ms);
  set_pace(found.reports, moment.wall_ms);
  last_look_ms_ = moment.wall_ms;
  return found;
}

std::string LogWatch::unread() const {
  const auto bytes = unread_bytes_.load();
  return bytes == 0 ? std::string() : "the last " + std::to_string(bytes) + " bytes of the log";
}

void LogWatch::begin_anew() {
  offset_ = 0;
  lines_ = PlainLines();
}

// Lines have no time of their own. They were written since the last look, evenly as far as is known.
void LogWatch::set_times(std::vector<Report>& reports, std::int64_t now_ms) const {
  const auto since = last_look_ms_ > 0 && last_look_ms_ < now_ms ? now_ms - last_look_ms_ : 0;
  const auto count = static_cast<std::int64_t>(reports.size());
  for (std::int64_t i = 0; i < count; ++i) {
    reports[static_cast<std::size_t>(i)].at_ms = now_ms - since * (count - 1 - i) / count;
  }
}

// The time between two lines of one look is no time of a step. Without a pace the time of a step is not known.
void LogWatch::set_pace(std::vector<Report>& reports, std::int64_t now_ms) {
  std::optional<std::int64_t> newest;
  for (const auto& report : reports) {
    if (report.step) newest = report.step->step;
  }
  const auto pace = pace_.look(now_ms, newest);
  for (auto& report : reports) {
    if (report.step) report.step->step_ms = pace;
  }
}

}  // namespace agent::watch
