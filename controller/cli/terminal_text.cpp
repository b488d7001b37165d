#include "cli/terminal_text.h"

#include <algorithm>
#include <utility>

#include "cli/text.h"
#include "schema/utf8.h"

namespace cli {
namespace {

constexpr char kEscapeSign = '\x1b', kBell = '\a';
constexpr std::size_t kLongestSequence = 64;
constexpr std::size_t kLongestCharacter = 4;

/// Of ECMA-48: what begins a string that goes up to ESC \ (or a bell): DCS, SOS, OSC, PM, APC.
bool begins_string(char c) {
  return c == 'P' || c == 'X' || c == ']' || c == '^' || c == '_';
}

bool is_kept_control(char c) {
  return c == '\t' || c == '\r';
}

bool is_control(char c) {
  return static_cast<unsigned char>(c) < 0x20 || c == 0x7f;
}

/// Whether the bytes may be the beginning of a character whose rest has not come.
bool may_go_on(std::string_view text) {
  const auto first = static_cast<unsigned char>(text[0]);
  const std::size_t wanted = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : first >= 0xC2 ? 2 : 1;
  const auto is_tail = [](char c) { return (static_cast<unsigned char>(c) & 0xC0) == 0x80; };
  return text.size() < wanted && std::ranges::all_of(text.substr(1), is_tail);
}

}  // namespace

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
    const auto size = schema::character_bytes(text_);
    if (size == 0 && text_.size() < kLongestCharacter && may_go_on(text_)) return;
    // harmless() leaves a space for what controls the terminal, 8-bit controls too.
    out += harmless(std::string_view(text_).substr(0, std::max<std::size_t>(size, 1)));
    text_.erase(0, std::max<std::size_t>(size, 1));
  }
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
      if (c == 'm' && sequence_.find_first_not_of("0123456789;:") == std::string::npos &&
          sequence_.size() < kLongestSequence) {
        out += "\x1b[" + sequence_ + "m";
        coloured_ = !sequence_.empty() && sequence_.find_first_not_of("0;") != std::string::npos;
      }
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
