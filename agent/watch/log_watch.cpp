#include "agent/watch/log_watch.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>

#include "agent/watch/folder_walk.h"
#include "agent/watch/last_words.h"
#include "agent/watch/log_lines.h"

namespace agent::watch {
namespace {

constexpr double kLargestCount = 9e15;  // beyond, a double is no exact count

using log::is_digit;

/// Without what stands around a number: blanks, brackets, quotes, the name of a type, and marks behind it.
std::string_view bare(std::string_view text) {
  const auto begin = text.find_first_not_of(" \t([{'\"+");
  text.remove_prefix(std::min(begin, text.size()));
  for (const std::string_view type : {"tensor(", "array(", "np.float32(", "np.float64(", "Array("}) {
    if (text.starts_with(type)) return bare(text.substr(type.size()));
  }
  const auto end = text.find_last_not_of(" \t.,;:%)]}'\"");
  // A point belongs to the number: "2." is 2.
  return text.substr(0, end == std::string_view::npos ? 0 : end + 1);
}

/// "1,234.5" without its commas; nullopt: a comma stands elsewhere.
std::optional<std::string> without_thousands(std::string_view text) {
  std::string out;
  std::size_t digits = 0;  // since the last comma, or the beginning
  bool grouped = false, fraction = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    if (c == '_' && at > 0 && is_digit(text[at - 1])) continue;
    if (c != ',') {
      if (is_digit(c)) ++digits;
      if (grouped && !fraction && digits > 3) return std::nullopt;
      if (!is_digit(c) && c != '-') {
        if (grouped && !fraction && digits != 3) return std::nullopt;
        fraction = true;
      }
      out += c;
      continue;
    }
    const bool begins_with_zero = !grouped && digits > 0 && text[at - digits] == '0';
    if (fraction || digits == 0 || digits > 3 || (grouped && digits != 3) || begins_with_zero) return std::nullopt;
    grouped = true;
    digits = 0;
  }
  if (grouped && !fraction && digits != 3) return std::nullopt;
  return out;
}

/// The power of ten that a suffix of a number stands for; 0: the suffix is something else.
double multiplier(std::string_view suffix) {
  constexpr std::array<std::pair<std::string_view, double>, 6> kAll{
      {{"", 1}, {"k", 1e3}, {"K", 1e3}, {"M", 1e6}, {"G", 1e9}, {"T", 1e12}}};
  const auto* const found = std::ranges::find(kAll, suffix, &std::pair<std::string_view, double>::first);
  return found == kAll.end() ? 0 : found->second;
}

}  // namespace

std::optional<double> plain_number(std::string_view text) {
  constexpr std::string_view kMinus = "\xe2\x88\x92";
  std::string whole(bare(text));
  if (whole.starts_with(kMinus)) whole.replace(0, kMinus.size(), "-");
  const auto digits = without_thousands(whole);
  if (!digits) return std::nullopt;
  double value = 0;
  const auto* const end = digits->data() + digits->size();
  const auto [stop, error] = std::from_chars(digits->data(), end, value);
  if (error == std::errc::result_out_of_range) return std::numeric_limits<double>::quiet_NaN();
  if (error != std::errc()) return std::nullopt;
  const auto times = multiplier(std::string_view(stop, end));
  if (times == 0) return std::nullopt;
  return std::isfinite(value) ? value * times : std::numeric_limits<double>::quiet_NaN();
}

std::optional<std::int64_t> plain_count(std::string_view text) {
  const auto value = plain_number(text.substr(0, text.find('/')));
  if (!value || !(*value >= 0 && *value <= kLargestCount && *value == std::floor(*value))) return std::nullopt;
  return static_cast<std::int64_t>(*value);
}

namespace {

constexpr char kEscapeSign = '\x1b';
constexpr char kBell = '\a';
/// A command that is longer is none.
constexpr std::size_t kLongestCommand = 4096;

bool ends_line(char c) {
  return c == '\n' || c == '\r' || c == '\b';
}

}  // namespace

// Commands of ECMA-48: ESC [ parameters letter; ESC ] text BEL, or ESC ] text ESC \; ESC and one more character.
PlainLines::State PlainLines::after(char c) const {
  switch (state_) {
    case State::kText:
      return c == kEscapeSign ? State::kEscape : State::kText;
    case State::kEscape:
      return c == '[' ? State::kCommand : c == ']' ? State::kTitle : State::kText;
    case State::kCommand:
      return c >= 0x40 && c <= 0x7e ? State::kText : State::kCommand;
    case State::kTitle:
      return c == kBell ? State::kText : c == kEscapeSign ? State::kTitleEscape : State::kTitle;
    case State::kTitleEscape:
      break;
  }
  return State::kText;
}

void PlainLines::feed(std::string_view bytes, const Take& take) {
  for (const char c : bytes) {
    if (ends_line(c) || command_bytes_ > kLongestCommand) {
      state_ = State::kText;
      command_bytes_ = 0;
    }
    if (ends_line(c)) {
      end_line(take);
      continue;
    }
    const auto next = after(c);
    if (state_ == State::kText && next == State::kText) {
      if (line_.size() < kLongest) line_ += c;
    } else {
      command_bytes_ = next == State::kText ? 0 : command_bytes_ + 1;
    }
    state_ = next;
  }
}

void PlainLines::finish(const Take& take) {
  end_line(take);
}

void PlainLines::end_line(const Take& take) {
  if (!line_.empty()) take(line_);
  line_.clear();
}

LogReports::LogReports(const std::map<std::string, std::string>& patterns) {
  for (const auto& [name, pattern] : patterns) {
    unmatched_.insert(name);
    if (name == spec::kStepPattern) {
      step_pattern_.emplace(pattern);
    } else if (name == spec::kResumedPattern) {
      resumed_pattern_.emplace(pattern);
    } else if (name == spec::kTotalPattern) {
      total_pattern_.emplace(pattern);
    } else {
      patterns_.emplace_back(name, spec::LogPattern(pattern));
    }
  }
}

std::optional<Report> LogReports::take(std::string_view line) {
  Report report;
  report.resumed = read_resumed(line);
  report.total_steps = read_total(line);
  report.step = read_values(line);
  if (!report.resumed && !report.total_steps && !report.step) return std::nullopt;
  return report;
}

/// Once: a program may say again what it had said at its start. Steps that are counted go on from there.
std::optional<std::int64_t> LogReports::read_resumed(std::string_view line) {
  if (!resumed_pattern_ || resumed_) return std::nullopt;
  resumed_ = count_of(spec::kResumedPattern, *resumed_pattern_, line);
  return resumed_;
}

std::optional<std::int64_t> LogReports::read_total(std::string_view line) {
  if (!total_pattern_) return std::nullopt;
  const auto total = count_of(spec::kTotalPattern, *total_pattern_, line);
  if (!total || total == total_) return std::nullopt;
  total_ = total;
  return total;
}

std::optional<ReportedStep> LogReports::read_values(std::string_view line) {
  const bool is_new_step = step_pattern_ && read_step(line);
  auto values = values_of(line);
  const auto is_told = [this](const auto& value) { return told_.contains(value.first); };
  if (!step_pattern_ && !values.empty() && (!step_ || std::ranges::any_of(values, is_told))) {
    begin_step(step_.value_or(resumed_.value_or(0)) + 1);
  }
  if (!step_) return std::nullopt;
  std::erase_if(values, is_told);
  if (values.empty() && !is_new_step) return std::nullopt;
  for (const auto& [name, value] : values) told_.insert(name);
  ReportedStep step;
  step.step = *step_;
  step.values = std::move(values);
  return step;
}

LogReports::Values LogReports::values_of(std::string_view line) {
  Values values;
  for (const auto& [name, pattern] : patterns_) {
    const auto found = pattern.find(line);
    if (!found) continue;
    if (!unmatched_.empty()) unmatched_.erase(name);
    if (const auto value = plain_number(*found)) {
      values.emplace_back(name, *value);
    } else {
      complain(name, *found);
    }
  }
  return values;
}

/// True: the line begins another step.
bool LogReports::read_step(std::string_view line) {
  const auto step = count_of(spec::kStepPattern, *step_pattern_, line);
  if (!step || step == step_) return false;
  begin_step(*step);
  return true;
}

std::optional<std::int64_t> LogReports::count_of(std::string_view name, const spec::LogPattern& pattern,
                                                 std::string_view line) {
  const auto found = pattern.find(line);
  if (!found) return std::nullopt;
  if (!unmatched_.empty()) unmatched_.erase(std::string(name));
  const auto count = plain_count(*found);
  if (!count) complain(name, *found);
  return count;
}

std::string LogReports::unmatched() const {
  std::string names;
  for (const auto& name : unmatched_) {
    if (name != spec::kResumedPattern) names += (names.empty() ? "" : ", ") + name;
  }
  return names;
}

void LogReports::begin_step(std::int64_t step) {
  step_ = step;
  told_.clear();
}

void LogReports::complain(std::string_view name, std::string_view found) {
  if (!complaint_.empty()) return;
  complaint_ = "report.log." + std::string(name) + " finds \"" + fit_for_a_sentence(found.substr(0, 60)) +
               "\" in the log, which is no " + (spec::is_of_the_run(name) ? "whole number" : "number");
}

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
