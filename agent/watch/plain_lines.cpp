#include "agent/watch/plain_lines.h"

namespace agent::watch {
namespace {

constexpr char kEscapeSign = '\x1b';
constexpr char kBell = '\a';
/// A command that is longer is none.
constexpr std::size_t kLongestCommand = 4096;

bool ends_line(char c) {
  return c == '\n' || c == '\r' || c == '\b';
}

}  // namespace

// As ECMA-48 has it: ESC [ parameters letter; ESC ] text BEL, or ESC ] text ESC \; ESC and one more character.
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

}  // namespace agent::watch
