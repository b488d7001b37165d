#include "agent/watch/report.h"

#include <nlohmann/json.hpp>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "agent/watch/folder_walk.h"
#include "spec/report_keys.h"

namespace agent::watch {
namespace {

using nlohmann::json;

constexpr int kMostBrackets = 5'000;  // the JSON library writes nested values by recursion
constexpr std::size_t kLongestSection = 40;
constexpr double kLargestStep = 9e15;  // beyond, a double is no exact count

/// The line with null for the three words that JSON does not know and that Python writes.
std::string without_unknown_numbers(std::string_view line) {
  constexpr std::array<std::string_view, 3> kWords{"NaN", "-Infinity", "Infinity"};
  std::string out;
  bool in_text = false;
  while (!line.empty()) {
    const auto* const word = std::ranges::find_if(kWords, [&](auto one) { return line.starts_with(one); });
    if (!in_text && word != kWords.end()) {
      out += "null";
      line.remove_prefix(word->size());
      continue;
    }
    if (line[0] == '"') in_text = !in_text;
    const std::size_t taken = in_text && line[0] == '\\' && line.size() > 1 ? 2 : 1;  // with what is escaped
    out += line.substr(0, taken);
    line.remove_prefix(taken);
  }
  return out;
}

json parsed(std::string_view line) {
  auto object = json::parse(line, nullptr, false);
  return object.is_discarded() ? json::parse(without_unknown_numbers(line), nullptr, false) : object;
}

/// The beginning of a text, for a sentence.
std::string beginning(std::string_view text) {
  constexpr std::size_t kMost = 60;
  std::string out;
  for (const char c : text.substr(0, kMost)) out += static_cast<unsigned char>(c) < 0x20 ? ' ' : c;
  return text.size() > kMost ? out + "..." : out;
}

/// The text at this key; empty: there is none.
std::string text_of(const json& object, const char* key) {
  const auto found = object.find(key);
  return found != object.end() && found->is_string() ? found->get<std::string>() : std::string();
}

class Reader {
 public:
  explicit Reader(const json& line) : line_(line) {}

  Report read() {
    report_.at_ms = count("at_ms");
    report_.total_steps = count("total_steps");
    report_.resumed = count("resumed");
    const auto step = count("step");
    if (const auto* config = part("config", json::value_t::object)) read_config(*config);
    if (const auto* section = part("section", json::value_t::string)) read_section(section->get<std::string>());
    if (const auto* status = part("status", json::value_t::string)) report_.status = status->get<std::string>();
    if (const auto* path = part("checkpoint", json::value_t::string)) read_checkpoint(*path, step);
    if (const auto* series = part("series", json::value_t::object)) read_series(*series);
    read_error();
    read_step(step);
    return std::move(report_);
  }

 private:
  void complain(const std::string& about) {
    if (report_.complaint.empty()) report_.complaint = about;
  }

  void expect(const std::string& key, const std::string& is, const std::string& wanted) {
    complain("\"" + key + "\" is " + is + "; expected " + wanted);
  }

  /// The value of a key that is no series if it has this type.
  const json* part(const char* key, json::value_t type) {
    const auto found = line_.find(key);
    if (found == line_.end() || found->is_number() || found->is_null()) return nullptr;
    if (found->type() == type) return &*found;
    expect(key, found->type_name(), json(type).type_name());
    return nullptr;
  }

  std::optional<double> number(const char* key) {
    const auto found = line_.find(key);
    if (found == line_.end() || found->is_null()) return std::nullopt;
    if (found->is_number()) return found->get<double>();
    expect(key, found->type_name(), "number");
    return std::nullopt;
  }

  std::optional<std::int64_t> count(const char* key) {
    const auto value = number(key);
    if (!value) return std::nullopt;
    if (*value >= 0 && *value <= kLargestStep && *value == std::floor(*value)) return static_cast<std::int64_t>(*value);
    expect(key, line_[key].dump(), "a whole number of 0 or more");
    return std::nullopt;
  }

  void read_config(const json& config) {
    auto text = config.dump(-1, ' ', false, json::error_handler_t::replace);
    if (text.size() <= kMostConfig) {
      report_.config = std::move(text);
      return;
    }
    complain("\"config\" has " + std::to_string(text.size()) + " bytes; expected at most " +
             std::to_string(kMostConfig));
  }

  void read_section(std::string name) {
    const bool plain = std::ranges::none_of(name, [](char c) { return static_cast<unsigned char>(c) < 0x20; });
    if (plain && !name.empty() && name.size() <= kLongestSection) {
      report_.section = std::move(name);
      return;
    }
    complain("\"" + beginning(name) + "\" is no name of a section; use one line of 1 to " +
             std::to_string(kLongestSection) + " bytes");
  }

  void read_checkpoint(const json& path, std::optional<std::int64_t> step) {
    if (!step) return complain("\"checkpoint\" has no \"step\"; write the step that the checkpoint holds");
    report_.checkpoint = ReportedCheckpoint{path.get<std::string>(), *step, count("bytes"), number("took_ms")};
  }

  void read_series(const json& all) {
    for (const auto& entry : all.items()) {
      const auto& name = entry.key();
      const auto& facts = entry.value();
      if (!is_name(name)) continue;
      if (!facts.is_object()) {
        complain("the description of series \"" + name + "\" is " + facts.type_name() + "; expected object");
        continue;
      }
      auto one = spec::undeclared_series(name);
      const auto better = text_of(facts, "better"), over_ranks = text_of(facts, "over_ranks");
      const auto unit = text_of(facts, "unit");
      if (!better.empty()) one.better = spec::better_of(better);
      if (!over_ranks.empty()) one.over_ranks = spec::over_ranks_of(over_ranks);
      if (!better.empty() && to_string(one.better) != better) {
        complain("better of series \"" + name + "\" is \"" + better + "\"; expected lower, higher or neither");
      }
      if (!over_ranks.empty() && to_string(one.over_ranks) != over_ranks) {
        complain("over_ranks of series \"" + name + "\" is \"" + over_ranks + "\"; expected mean, sum, max or rank0");
      }
      if (unit.size() > spec::kLongestUnit) {
        complain("unit of series \"" + name + "\" is longer than " + std::to_string(spec::kLongestUnit) + " bytes");
      } else {
        one.unit = unit;
      }
      report_.series.push_back(std::move(one));
    }
  }

  void read_error() {
    const auto found = line_.find("error");
    if (found == line_.end()) return;
    if (found->is_string()) report_.error = ReportedError{"", found->get<std::string>(), ""};
    if (!found->is_object()) return;
    report_.error = ReportedError{text_of(*found, "type"), text_of(*found, "message"), text_of(*found, "trace")};
  }

  void read_step(std::optional<std::int64_t> step) {
    ReportedStep out;
    for (const auto& [key, value] : line_.items()) {
      if (spec::is_report_key(key) || (!value.is_number() && !(value.is_null() && step))) continue;
      if (is_name(key)) out.values.emplace_back(key, value.is_null() ? kNoNumber : value.get<double>());
    }
    if (!step) {
      if (!out.values.empty())
        complain("\"" + out.values.front().first + "\" has no \"step\"; write the step that it is of");
      return;
    }
    if (out.values.empty() && (report_.checkpoint || line_.contains("checkpoint"))) return;
    out.step = *step;
    out.step_ms = number("step_ms");
    out.memory_bytes = count("memory_bytes");
    out.memory_peak_bytes = count("memory_peak_bytes");
    out.bytes_communicated = count("bytes_communicated");
    report_.step = std::move(out);
  }

  bool is_name(const std::string& name) {
    if (spec::is_series_name(name)) return true;
    complain("\"" + beginning(name) + "\" is no name of a series; use letters, digits and . _ - / @ + : %, at most " +
             std::to_string(spec::kLongestSeries));
    return false;
  }

  static constexpr double kNoNumber = std::numeric_limits<double>::quiet_NaN();

  const json& line_;
  Report report_;
};

}  // namespace

std::variant<Report, BadLine> parse_report(std::string_view line) {
  if (line.size() >= spec::kMostReportLine) {
    return BadLine{"a line of " + std::to_string(line.size() + 1) + " bytes is over the limit of " +
                   std::to_string(spec::kMostReportLine)};
  }
  if (std::ranges::count(line, '[') + std::ranges::count(line, '{') > kMostBrackets) {
    return BadLine{"a line has over " + std::to_string(kMostBrackets) + " lists and objects"};
  }
  const auto object = parsed(line);
  if (!object.is_object()) return BadLine{"\"" + beginning(line) + "\" is no JSON object"};
  return Reader(object).read();
}

Found ReportTail::read(bool ended) {
  const auto bytes = read_part(file_, offset_, kMostAtOnce).bytes;
  Found out;
  std::string_view rest = bytes;
  while (!rest.empty()) {
    const auto end = rest.find('\n');
    const bool whole = end != std::string_view::npos;
    if (!whole && rest.size() < spec::kMostReportLine && !(ended && bytes.size() < kMostAtOnce)) break;
    const auto line = rest.substr(0, end);
    const auto taken = whole ? end + 1 : rest.size();
    if (!skips_) take(line, out.reports);
    skips_ = !whole;
    offset_ += taken;
    rest.remove_prefix(taken);
    out.more = true;
  }
  return out;
}

void ReportTail::take(std::string_view line, std::vector<Report>& out) {
  ++line_;
  if (line.find_first_not_of(" \t\r") == std::string_view::npos) return;
  auto parsed = parse_report(line);
  if (const auto* bad = std::get_if<BadLine>(&parsed)) return complain(bad->why);
  auto& report = std::get<Report>(parsed);
  if (!report.complaint.empty()) complain(report.complaint);
  out.push_back(std::move(report));
}

void ReportTail::complain(const std::string& why) {
  ++bad_lines_;
  if (!first_complaint_) first_complaint_ = "line " + std::to_string(line_) + ": " + why;
}

}  // namespace agent::watch
