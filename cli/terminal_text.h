#pragma once

#include <string>
#include <string_view>

namespace cli {

/// Lets a program's output through to a terminal, without anything that acts on the terminal but colours.
///
/// Kept are texts in UTF-8, tabs, carriage returns (progress bars), and of the sequences ESC [ ... m what sets colours,
/// bold and underlines, and what resets them. Removed are concealed and blinking text and the other styles, and all
/// other escape sequences: titles, links, the clipboard, cursor and screen, also those of one byte and those that end
/// late, and the control characters. Characters that change the direction of writing
/// become spaces, and bytes that are not valid UTF-8 become "?". Text may come in pieces that are cut anywhere.
class TerminalText {
 public:
  /// What may be printed of the piece. The beginning of a sequence or a character waits for the next piece.
  std::string pass(std::string_view piece);
  /// The line ends: what waits is left out, since no sequence that is kept goes over lines.
  void end_line();
  /// What ends the colours that are set still; empty: none are.
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
