#include "cli/cli_text.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdio>
#include <ctime>
#include <optional>
#include <utility>

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

constexpr char kEscapeSign = '\x1b', kBell = '\a';
constexpr std::size_t kLongestSequence = 64;
constexpr std::size_t kLongestCharacter = 4;

/// True if the character begins a string of ECMA-48 that goes up to ESC \ (or a bell): DCS, SOS, OSC, PM, APC.
bool begins_string(char c) {
  return c == 'P' || c == 'X' || c == ']' || c == '^' || c == '_';
}

bool is_kept_control(char c) {
  return c == '\t' || c == '\r';
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

/// The parameters of ESC [ ... m, one after the other. Parts of one stand between colons.
class Parameters {
 public:
  using One = std::vector<std::optional<unsigned>>;

  explicit Parameters(std::string_view text) : text_(text) {}
  /// nullopt: there is none any more, or what comes is none.
  std::optional<One> next() {
    if (is_over_) return std::nullopt;
    const auto end = std::min(text_.find(';'), text_.size());
    auto rest = text_.substr(0, end);
    is_over_ = end == text_.size();
    text_.remove_prefix(std::min(end + 1, text_.size()));
    One one;
    for (bool more = true; more;) {
      const auto colon = std::min(rest.find(':'), rest.size());
      const auto part = rest.substr(0, colon);
      more = colon < rest.size();
      rest.remove_prefix(std::min(colon + 1, rest.size()));
      const auto value = base::whole_number<unsigned>(part);
      if (!part.empty() && !value) {
        is_over_ = true;
        return std::nullopt;
      }
      one.push_back(value);
    }
    return one;
  }

 private:
  std::string_view text_;
  bool is_over_ = false;
};

enum class Effect { kNone, kSets, kResets };

struct Style {
  std::string text;  // as it is handed out; empty: it is left out
  Effect effect = Effect::kNone;
};

/// The codes of the parts that can have a colour of their own: text, background, underlines.
constexpr unsigned kTextColour = 38, kBackgroundColour = 48, kUnderlineColour = 58;
constexpr unsigned kOfPalette = 5, kOfRedGreenBlue = 2;

/// ESC [ 38;5;n m, 38;2;r;g;b, and the same with colons, where a colour space may stand before r. nullopt: it is cut
/// off or something else.
std::optional<Style> read_own_colour(const Parameters::One& one, Parameters& all) {
  Parameters::One parts(one.begin() + 1, one.end());
  const bool has_colons = !parts.empty();
  const auto take = [&] {
    const auto next = all.next();
    if (!next || next->size() != 1) return false;
    parts.push_back(next->front().value_or(0));
    return true;
  };
  if (!has_colons && !take()) return std::nullopt;
  const auto kind = parts.front().value_or(0);
  if (kind != kOfPalette && kind != kOfRedGreenBlue) return std::nullopt;
  const std::size_t numbers = kind == kOfPalette ? 1 : 3;
  while (!has_colons && parts.size() < 1 + numbers) {
    if (!take()) return std::nullopt;
  }
  parts.erase(parts.begin());
  constexpr std::size_t kWithSpace = 4;
  if (kind == kOfRedGreenBlue && parts.size() >= kWithSpace) parts.erase(parts.begin());
  if (parts.size() < numbers) return std::nullopt;
  parts.resize(numbers);  // a tolerance may follow
  auto text = std::to_string(one.front().value_or(0)) + ";" + std::to_string(kind);
  for (const auto& part : parts) {
    if (part.value_or(0) > 255) return std::nullopt;
    text += ";" + std::to_string(part.value_or(0));
  }
  if (one.front() == kUnderlineColour) return Style{};  // not every terminal knows it: to some it is 5, blink
  return Style{text, Effect::kSets};
}

/// nullopt: what follows cannot be told apart from what belongs to it.
std::optional<Style> read_style(const Parameters::One& one, Parameters& all) {
  const auto number = one.front().value_or(0);
  if (number == kTextColour || number == kBackgroundColour || number == kUnderlineColour)
    return read_own_colour(one, all);
  constexpr unsigned kUnderline = 4, kNoUnderline = 24;
  if (one.size() > 1) {  // 4:3 is a curly line
    if (number != kUnderline || one.size() != 2) return Style{};
    return one[1] == 0U ? Style{std::to_string(kNoUnderline)} : Style{std::to_string(kUnderline), Effect::kSets};
  }
  const auto is_in = [number](unsigned first, unsigned last) { return number >= first && number <= last; };
  const auto text = std::to_string(number);
  if (number == 0) return Style{text, Effect::kResets};
  if (number == 1 || number == kUnderline || is_in(30, 37) || is_in(40, 47) || is_in(90, 97) || is_in(100, 107))
    return Style{text, Effect::kSets};
  if (number == 22 || number == kNoUnderline || number == 39 || number == 49) return Style{text};
  return Style{};
}

/// True if the bytes may be the beginning of a character whose rest has not come.
bool may_go_on(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t wanted = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 1;
  const auto is_tail = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  return text.size() < wanted && std::ranges::all_of(text.substr(1), is_tail);
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

std::string TerminalText::pass(std::string_view piece) {
  std::string out;
  out.reserve(piece.size());
  for (const char c : piece) take(c, out);
  return out;
}

void TerminalText::end_line() {
  state_ = State::kText;
  text_.clear();
  sequence_.clear();
}

std::string TerminalText::reset() {
  return std::exchange(coloured_, false) ? "\x1b[0m" : "";
}

/// Hands out what of text_ is whole.
void TerminalText::take_text(std::string& out) {
  while (!text_.empty()) {
    const auto size = base::character_bytes(text_);
    if (size == 0 && text_.size() < kLongestCharacter && may_go_on(text_)) return;
    // harmless() leaves a space for what controls the terminal, 8-bit controls too.
    out += harmless(std::string_view(text_).substr(0, std::max<std::size_t>(size, 1)));
    text_.erase(0, std::max<std::size_t>(size, 1));
  }
}

/// Hands out what of ESC [ ... m sets colours, bold, underlines, or nothing any more.
void TerminalText::take_styles(std::string& out) {
  Parameters all(sequence_);
  std::string kept;
  while (const auto one = all.next()) {
    const auto style = read_style(*one, all);
    if (!style) break;  // how many of the rest belong to it is not known
    if (style->text.empty()) continue;
    kept += (kept.empty() ? "" : ";") + style->text;
    if (style->effect != Effect::kNone) coloured_ = style->effect == Effect::kSets;
  }
  if (!kept.empty()) out += "\x1b[" + kept + "m";
}

void TerminalText::take(char c, std::string& out) {
  if (c == kEscapeSign && state_ != State::kString && state_ != State::kStringEscape) {
    text_.clear();
    sequence_.clear();
    state_ = State::kEscape;
    return;
  }
  switch (state_) {
    case State::kText:
      if (is_control(c)) {
        text_.clear();
        if (is_kept_control(c)) out += c;
        return;
      }
      text_ += c;
      return take_text(out);
    case State::kEscape:
      // Between ESC and its last character others may stand (0x20 to 0x2F).
      if (c >= 0x20 && c <= 0x2f) return;
      state_ = c == '[' ? State::kSequence : begins_string(c) ? State::kString : State::kText;
      return;
    case State::kSequence:
      if (c < 0x40 || c > 0x7e) {
        if (sequence_.size() < kLongestSequence) sequence_ += c;
        return;
      }
      state_ = State::kText;
      if (c == 'm' && sequence_.size() < kLongestSequence) take_styles(out);
      sequence_.clear();
      return;
    case State::kString:
      state_ = c == kBell ? State::kText : c == kEscapeSign ? State::kStringEscape : State::kString;
      return;
    case State::kStringEscape:
      state_ = c == '\\' ? State::kText : c == kEscapeSign ? State::kStringEscape : State::kString;
      return;
  }
}

}  // namespace cli
