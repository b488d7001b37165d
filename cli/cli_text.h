#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/numbers.h"
#include "base/words.h"

namespace cli {

/// The message of a command that is run where the shell's folder was removed.
inline constexpr std::string_view kNoWorkingFolder =
    "this shell's folder was removed: cd to another one, and try again";

/// The number of characters in a UTF-8 text. Combining and wide characters count as one.
std::size_t width_of(std::string_view text);
/// Makes the text safe for a terminal. Escape sequences are removed. Other control characters, and characters that
/// change the direction of writing, become spaces. Bytes that are not valid UTF-8 become "?".
std::string harmless(std::string_view text);
/// The text with at most `width` characters. A cut text ends with "...". Control characters become spaces.
std::string cut(std::string_view text, std::size_t width);
/// The text in lines of at most `width` characters. Lines break at spaces if possible.
std::vector<std::string> wrapped(std::string_view text, std::size_t width);

using base::append;
using base::joined;

/// The text, or "-" if it is empty.
std::string or_dash(const std::string& text);

using base::bytes_text;
/// A duration in at most two units: "3m12s", "2d4h", "850ms".
std::string duration_text(std::int64_t milliseconds);
/// Milliseconds since 1970 of an RFC 3339 time in UTC; -1: the text is not such a time.
std::int64_t time_ms(const std::string& rfc3339);
/// The time now, in milliseconds since 1970.
std::int64_t now_ms();
/// An RFC 3339 time as "2026-11-20 19:48:55", in UTC; "-" if it is empty.
std::string time_text(const std::string& rfc3339);
/// The time as time_text() has it, followed by " UTC".
std::string utc_text(const std::string& rfc3339);
/// The time between two RFC 3339 times: "3m12s". An empty `to` means now. "-" if `from` is empty.
std::string span_text(const std::string& from, const std::string& to);
/// A number with four to five significant digits: "2.871", "21034", "1.2e+08".
std::string number_text(double value, int digits = 4);

/// Lets a program's output through to a terminal, without anything that acts on the terminal but colours.
///
/// Kept are texts in UTF-8, tabs, carriage returns (progress bars), and of the sequences ESC [ ... m what sets colours,
/// bold and underlines, and what resets them. Removed are concealed and blinking text and the other styles, and all
/// other escape sequences: titles, links, the clipboard, cursor and screen, also those of one byte and those that end
/// late, and the control characters. Characters that change the direction of writing
/// become spaces, and bytes that are not valid UTF-8 become "?". Text may come in pieces that are cut anywhere.
class TerminalText {
 public:
  /// The printable text of the piece. The beginning of a sequence or a character waits for the next piece.
  std::string pass(std::string_view piece);
  /// The line ends: what waits is left out, since no sequence that is kept goes over lines.
  void end_line();
  /// The sequence that ends the colours that are still set; empty: no colour is set.
  std::string reset();

 private:
  enum class State { kText, kEscape, kSequence, kString, kStringEscape };
  void take_text(std::string& out);
  void take_styles(std::string& out);
  void take(char c, std::string& out);

  State state_ = State::kText;
  std::string text_;      // of a character whose end has not come
  std::string sequence_;  // the parameters of ESC [
  bool coloured_ = false;
};

}  // namespace cli
