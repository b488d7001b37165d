#include "cli/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "cli/text.h"

namespace cli {
namespace {

constexpr std::size_t kUsualColumns = 80;
constexpr std::size_t kFewestColumns = 40;
constexpr std::size_t kMostColumns = 1000;
constexpr std::size_t kFewestLines = 5;
constexpr std::size_t kGap = 2;
constexpr std::size_t kLabelWidth = 13;
constexpr std::size_t kLeastRoom = 19;

/// 0: not known.
std::size_t known_columns() {
  winsize size{};
  std::size_t width = 0;
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0) width = size.ws_col;
  if (const char* text = std::getenv("COLUMNS"); width == 0 && text != nullptr) width = std::strtoul(text, nullptr, 10);
  return width == 0 ? 0 : std::clamp(width, kFewestColumns, kMostColumns);
}

std::size_t known_lines() {
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) == 0 && size.ws_row > 0) return size.ws_row;
  const char* text = std::getenv("LINES");
  return text == nullptr ? 0 : std::strtoul(text, nullptr, 10);
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
  const auto known = known_lines();
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

std::vector<std::size_t> Table::widths(std::size_t room) const {
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

std::string Table::text(std::size_t indent) const {
  const auto fitting = widths(table_columns() - indent);
  std::vector<std::string> titles;
  for (const auto& column : columns_) titles.push_back(column.title);
  const std::string margin(indent, ' ');
  auto out = margin + line(titles, fitting, true) + "\n";
  for (const auto& row : rows_) out += margin + line(row, fitting, false) + "\n";
  return out;
}

}  // namespace cli
