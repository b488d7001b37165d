#include "agent/watch/log_lines.h"

#include <algorithm>
#include <cctype>

namespace agent::watch::log {
namespace {

/// Without what colours and moves the cursor: CSI and OSC sequences, and other control characters.
std::string plain(std::string_view line) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    const auto c = static_cast<unsigned char>(line[i]);
    if (c != 0x1B) {
      if (c == '\t' || (c >= 0x20 && c != 0x7F)) out += line[i];
      continue;
    }
    if (++i >= line.size()) break;
    if (line[i] == '[') {
      while (++i < line.size() && (line[i] < 0x40 || line[i] > 0x7E)) {
      }
    } else if (line[i] == ']') {
      while (++i < line.size() && line[i] != '\a' && !(line[i] == '\\' && line[i - 1] == 0x1B)) {
      }
    }
  }
  return out;
}

struct Prefix {
  std::size_t size = 0;
  int rank = kNoRank;
};

/// What a launcher or a logger puts before each line of a rank: "[rank0]: ", "[default3]:", "[rank 1] ", "7: ".
Prefix prefix_of(std::string_view line) {
  std::size_t i = 0;
  const bool bracket = line.starts_with('[');
  if (bracket) {
    for (const std::string_view word : {"[rank", "[Rank", "[default", "["}) {
      if (line.starts_with(word)) {
        i = word.size();
        break;
      }
    }
    if (i < line.size() && line[i] == ' ') ++i;
  }
  const auto digits = i;
  int rank = 0;
  while (i < line.size() && is_digit(line[i]) && i - digits <= 5) rank = 10 * rank + (line[i++] - '0');
  if (i == digits || i - digits > 5) return {};
  if (bracket) {
    if (i >= line.size() || line[i] != ']') return {};
    ++i;
    if (i < line.size() && line[i] == ':') ++i;
  } else {
    if (i >= line.size() || line[i] != ':') return {};
    ++i;
  }
  const bool spaced = i < line.size() && line[i] == ' ';
  if (!bracket && !spaced && i < line.size()) return {};
  return {i + (spaced ? 1 : 0), rank};
}

/// Python draws exception groups with "|" and "+" on the left, and their members further to the right: those are left
/// out, the group has a line of its own.
std::string_view without_drawing(std::string_view line) {
  constexpr std::size_t kMembers = 4;
  const auto first = line.find_first_not_of(' ');
  if (first == std::string_view::npos || (line[first] != '|' && line[first] != '+')) return line;
  if (first >= kMembers) return {};
  auto rest = line.substr(first + 1);
  if (line[first] == '+' && !rest.starts_with(" Exception Group Traceback")) return {};
  if (rest.starts_with(' ')) rest.remove_prefix(1);
  return rest;
}

bool equal_but_case(char a, char b) {
  return std::tolower(static_cast<unsigned char>(a)) == std::tolower(static_cast<unsigned char>(b));
}

}  // namespace

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

bool contains(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

std::string_view trimmed(std::string_view text) {
  while (!text.empty() && (text.front() == ' ' || text.front() == '\t')) text.remove_prefix(1);
  while (!text.empty() && (text.back() == ' ' || text.back() == '\t')) text.remove_suffix(1);
  return text;
}

bool equal_in_any_case(std::string_view a, std::string_view b) {
  return std::ranges::equal(a, b, equal_but_case);
}

std::size_t find_in_any_case(std::string_view text, std::string_view part) {
  const auto found = std::ranges::search(text, part, equal_but_case);
  return found.empty() ? std::string_view::npos : static_cast<std::size_t>(found.begin() - text.begin());
}

bool contains_in_any_case(std::string_view text, std::string_view part) {
  return find_in_any_case(text, part) != std::string_view::npos;
}

bool begins_with_digits(std::string_view text) {
  text = trimmed(text);
  if (!text.empty() && (text.front() == '-' || text.front() == '+' || text.front() == '.')) text.remove_prefix(1);
  return !text.empty() && is_digit(text.front());
}

std::string with_next(const Lines& lines, std::size_t i) {
  std::string line(trimmed(lines[i].text));
  if (line.ends_with(':') && i + 1 < lines.size()) line += " " + std::string(trimmed(lines[i + 1].text));
  return line;
}

Lines last_lines(std::string_view log, std::size_t most) {
  Lines lines;
  while (!log.empty() && lines.size() < most) {
    while (!log.empty() && (log.back() == '\n' || log.back() == '\r')) log.remove_suffix(1);
    const auto end = log.find_last_of("\n\r");
    const auto raw = end == std::string_view::npos ? log : log.substr(end + 1);
    log.remove_suffix(raw.size());
    auto line = plain(raw);
    const auto prefix = prefix_of(line);
    line.erase(0, prefix.size);
    if (const auto bare = without_drawing(line); !trimmed(bare).empty())
      lines.push_back({std::string(bare), prefix.rank});
  }
  std::ranges::reverse(lines);
  return lines;
}

}  // namespace agent::watch::log
