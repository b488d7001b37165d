#include "cli/text.h"

#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>

#include "base/units.h"
#include "base/utf8.h"

namespace cli {
namespace {

bool starts_character(char c) {
  return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
}

/// The length in bytes of the first `count` characters.
std::size_t bytes_of(std::string_view text, std::size_t count) {
  std::size_t at = 0;
  for (; at < text.size(); ++at) {
    if (starts_character(text[at]) && count-- == 0) break;
  }
  return at;
}

/// The length in bytes of the escape sequence at the front of the text.
std::size_t escape_bytes(std::string_view text) {
  if (text.size() < 2 || text[1] != '[') return 1;
  std::size_t end = 2;
  while (end < text.size() && text[end] >= 0x20 && text[end] < 0x40) ++end;
  return std::min(end + 1, text.size());
}

/// True for a character that controls the terminal or the direction of writing.
bool is_control(std::string_view character) {
  if (character.size() == 1) return static_cast<unsigned char>(character[0]) < 0x20 || character[0] == 0x7f;
  if (character.size() == 2) return character[0] == '\xC2' && static_cast<unsigned char>(character[1]) < 0xA0;
  return (character >= "\u202A" && character <= "\u202E") || (character >= "\u2066" && character <= "\u2069") ||
         character == "\u2028" || character == "\u2029";
}

}  // namespace

std::string harmless(std::string_view text) {
  std::string out;
  while (!text.empty()) {
    auto size = base::character_bytes(text);
    if (text[0] == '\x1b') {
      size = escape_bytes(text);
    } else if (size == 0) {
      out += '?';
      size = 1;
    } else if (is_control(text.substr(0, size))) {
      out += ' ';
    } else {
      out += text.substr(0, size);
    }
    text.remove_prefix(size);
  }
  return out;
}

std::size_t width_of(std::string_view text) {
  std::size_t width = 0;
  for (const char c : text) width += starts_character(c) ? 1 : 0;
  return width;
}

std::string cut(std::string_view text, std::size_t width) {
  std::string out(text.substr(0, bytes_of(text, width)));
  if (out.size() < text.size() && width > 3) out = std::string(text.substr(0, bytes_of(text, width - 3))) + "...";
  for (char& c : out) {
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) c = ' ';
  }
  return out;
}

std::vector<std::string> wrapped(std::string_view text, std::size_t width) {
  std::vector<std::string> lines;
  while (width_of(text) > width) {
    auto end = bytes_of(text, width);
    const auto space = text.rfind(' ', end);
    if (space != std::string_view::npos && space > 0) end = space;
    lines.push_back(cut(text.substr(0, end), width));
    text.remove_prefix(end);
    while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  }
  if (!text.empty() || lines.empty()) lines.push_back(cut(text, width));
  return lines;
}

void append(std::string& list, std::string_view text, std::string_view between) {
  if (!list.empty()) list += between;
  list += text;
}

std::string or_dash(const std::string& text) {
  return text.empty() ? "-" : text;
}

std::string duration_text(std::int64_t milliseconds) {
  constexpr std::array<std::int64_t, 4> kUnits{86'400'000, 3'600'000, 60'000, 1000};
  if (milliseconds < 1000) return std::to_string(std::max<std::int64_t>(0, milliseconds)) + "ms";
  for (std::size_t i = 0; i + 1 < kUnits.size(); ++i) {
    if (milliseconds >= kUnits[i]) return base::print_duration_ms(milliseconds / kUnits[i + 1] * kUnits[i + 1]);
  }
  return base::print_duration_ms(milliseconds / 1000 * 1000);
}

std::int64_t time_ms(const std::string& rfc3339) {
  std::tm parts{};
  int milliseconds = 0;
  const int read = std::sscanf(rfc3339.c_str(), "%4d-%2d-%2dT%2d:%2d:%2d.%3d", &parts.tm_year, &parts.tm_mon,
                               &parts.tm_mday, &parts.tm_hour, &parts.tm_min, &parts.tm_sec, &milliseconds);
  if (read < 6) return -1;
  parts.tm_year -= 1900;
  parts.tm_mon -= 1;
  return static_cast<std::int64_t>(timegm(&parts)) * 1000 + milliseconds;
}

std::int64_t now_ms() {
  using namespace std::chrono;
  return duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
}

std::string time_text(const std::string& rfc3339) {
  if (rfc3339.size() < 19) return rfc3339.empty() ? "-" : rfc3339;
  return rfc3339.substr(0, 10) + " " + rfc3339.substr(11, 8);
}

std::string utc_text(const std::string& rfc3339) {
  return time_text(rfc3339) + " UTC";
}

std::string span_text(const std::string& from, const std::string& to) {
  const auto begin = time_ms(from);
  return begin < 0 ? "-" : duration_text((to.empty() ? now_ms() : time_ms(to)) - begin);
}

std::string number_text(double value, int digits) {
  char text[32];
  if (value >= 1000 && value < 1e7) {
    std::snprintf(text, sizeof text, "%.0f", value);
  } else {
    std::snprintf(text, sizeof text, "%.*g", digits, value);
  }
  return text;
}

}  // namespace cli
