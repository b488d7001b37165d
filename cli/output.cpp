#include "cli/output.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "cli/cli_text.h"
#include "proto/json/proto_json.h"

namespace cli {
namespace {

constexpr std::size_t kUsualColumns = 80;
constexpr std::size_t kFewestColumns = 40;
constexpr std::size_t kMostColumns = 1000;
constexpr std::size_t kFewestLines = 5;
constexpr std::size_t kGap = 2;
constexpr std::size_t kLabelWidth = 13;
constexpr std::size_t kLeastRoom = 19;

/// A measure of the terminal on stdout, else the variable; 0: not known.
std::size_t known_size(unsigned short winsize::*measure, const char* variable) {
  winsize terminal{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &terminal) == 0 && terminal.*measure > 0) return terminal.*measure;
  const char* text = std::getenv(variable);
  return text == nullptr ? 0 : std::strtoul(text, nullptr, 10);
}

std::size_t known_columns() {
  const auto width = known_size(&winsize::ws_col, "COLUMNS");
  return width == 0 ? 0 : std::clamp(width, kFewestColumns, kMostColumns);
}

bool colours_wanted() {
  static const bool wanted = [] {
    const char* no_color = std::getenv("NO_COLOR");
    const char* term = std::getenv("TERM");
    return stdout_is_terminal() && (no_color == nullptr || *no_color == '\0') &&
           (term == nullptr || std::string_view(term) != "dumb");
  }();
  return wanted;
}

std::string lead_of(const std::string& label) {
  return "  " + label + std::string(std::max(kLabelWidth, label.size() + 1) - label.size(), ' ');
}

using Json = nlohmann::ordered_json;
constexpr auto kReplace = Json::error_handler_t::replace;

/// Replaces empty times by null. Does not enter `spec` and `settings`, which hold names that users choose.
void empty_times_to_null(Json& json) {
  for (auto& [key, value] : json.items()) {
    if (value.is_string() && value.get_ref<const std::string&>().empty() &&
        (key == "at" || key.ends_with("_at") || key.ends_with("_until") || key == "expected_start")) {
      value = nullptr;
    } else if (value.is_structured() && key != "spec" && key != "settings") {
      empty_times_to_null(value);
    }
  }
}

/// Replaces the steps of a command that has not reported by null: it is not known whether it saved.
void unknown_steps_to_null(Json& job) {
  const auto step = job.find("step"), saved = job.find("last_checkpoint_step");
  if (step == job.end() || saved == job.end()) return;
  if (step->is_null() && *saved == 0) *saved = nullptr;
}

}  // namespace

bool stdout_is_terminal() {
  return isatty(STDOUT_FILENO) == 1;
}
bool stderr_is_terminal() {
  return isatty(STDERR_FILENO) == 1;
}

std::size_t columns() {
  const auto known = known_columns();
  return known == 0 ? kUsualColumns : known;
}
std::size_t table_columns() {
  const auto known = known_columns();
  // A terminal of unknown width counts as 80 wide, as in columns().
  return known == 0 && !stdout_is_terminal() ? SIZE_MAX : columns();
}

std::size_t screen_lines() {
  const auto known = known_size(&winsize::ws_row, "LINES");
  return known == 0 ? SIZE_MAX : std::max(known, kFewestLines);
}

std::string painted(std::string_view text, Colour colour) {
  if (colour == Colour::kNone || !colours_wanted()) return std::string(text);
  return "\x1b[" + std::to_string(static_cast<int>(colour)) + "m" + std::string(text) + "\x1b[0m";
}

Colour colour_of_state(std::string_view state) {
  state = state.substr(0, state.find(','));  // "running, held"
  if (state == "succeeded" || state == "completed") return Colour::kGreen;
  if (state == "failed" || state == "silent") return Colour::kRed;
  if (state == "waiting" || state == "held" || state == "stopping" || state == "draining") return Colour::kYellow;
  if (state == "running" || state == "starting") return Colour::kBlue;
  return state == "cancelled" ? Colour::kDim : Colour::kNone;
}

void print_entry(const std::string& label, const std::string& text) {
  if (text.empty()) return;
  const auto lead = lead_of(label);
  print_behind(lead, lead.size(), text);
}

void print_behind(std::string lead, std::size_t width, const std::string& text) {
  for (const auto& line : wrapped(text, std::max(table_columns(), width + kLeastRoom) - width)) {
    std::cout << lead << line << "\n";
    lead.assign(width, ' ');
  }
}

void print_path(const std::string& label, const std::string& path) {
  if (!path.empty()) std::cout << lead_of(label) << path << "\n";
}

std::vector<std::size_t> Table::widths() const {
  const auto room = table_columns();
  std::vector<std::size_t> widths;
  std::size_t total = 0;
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    std::size_t width = columns_[i].title.size();
    for (const auto& row : rows_) width = std::max(width, width_of(row[i]));
    widths.push_back(width);
    total += width + (i > 0 ? kGap : 0);
  }
  while (total > room && widths.size() > 1) {
    // The widest column that may still shrink loses one character. If none may shrink, the last column is left out.
    std::size_t widest = widths.size();
    for (std::size_t i = 0; i < widths.size(); ++i) {
      if (columns_[i].shrinks == 0 || widths[i] <= std::max(columns_[i].shrinks, columns_[i].title.size())) continue;
      if (widest == widths.size() || widths[i] >= widths[widest]) widest = i;
    }
    if (widest < widths.size()) {
      --widths[widest];
      --total;
    } else {
      total -= widths.back() + kGap;
      widths.pop_back();
    }
  }
  return widths;
}

std::string Table::line(const std::vector<std::string>& row, const std::vector<std::size_t>& widths, bool title) const {
  std::string out;
  for (std::size_t i = 0; i < widths.size(); ++i) {
    const auto text = cut(row[i], widths[i]);
    const std::string padding(widths[i] - width_of(text), ' ');
    const auto colour = title ? Colour::kDim : columns_[i].state ? colour_of_state(row[i]) : Colour::kNone;
    if (i > 0) out += std::string(kGap, ' ');
    if (columns_[i].right) out += padding;
    out += painted(text, colour);
    if (!columns_[i].right && i + 1 < widths.size()) out += padding;
  }
  while (!out.empty() && out.back() == ' ') out.pop_back();
  return out;
}

std::string Table::text() const {
  if (rows_.empty()) return "";
  const auto fitting = widths();
  std::vector<std::string> titles;
  for (const auto& column : columns_) titles.push_back(column.title);
  auto out = line(titles, fitting, true) + "\n";
  for (const auto& row : rows_) out += line(row, fitting, false) + "\n";
  return out;
}

Json with_version(const Json& object) {
  Json out{{"api_version", "v1"}};
  for (const auto& [key, value] : object.items()) out[key] = value;
  return out;
}

Json json_of(const google::protobuf::Message& message) {
  auto json = proto::to_json(message);
  empty_times_to_null(json);
  unknown_steps_to_null(json);
  return with_version(json);
}

void print_json(const Json& document) {
  std::cout << document.dump(2, ' ', false, kReplace) << "\n";
}

std::string csv_cell(const Json& value) {
  if (!value.is_string()) {
    const auto text = value.dump();
    return text == "null" ? "" : text;
  }
  const auto& text = value.get_ref<const std::string&>();
  if (text.find_first_of(",\"\r\n") == std::string::npos) return text;
  std::string out = "\"";
  for (const char c : text) out += c == '"' ? std::string("\"\"") : std::string(1, c);
  return out + "\"";
}

void JsonRows::add(const Json& row) {
  if (form_ == Form::kObject) return print_json(row);
  if (form_ == Form::kLines) {
    std::cout << row.dump(-1, ' ', false, kReplace) << std::endl;
  } else {
    std::cout << (any_ ? ",\n  " : "[\n  ") << row.dump(-1, ' ', false, kReplace);
  }
  any_ = true;
}

void JsonRows::end() {
  if (form_ == Form::kArray) std::cout << (any_ ? "\n]" : "[]") << "\n";
}

}  // namespace cli
