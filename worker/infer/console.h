#pragma once

#include <ostream>
#include <string_view>

namespace infer {

/// Where results go.
struct Console {
  std::ostream& out;
  std::ostream& notes;  // for people: which model, what was left out
  bool out_is_terminal = false;
};

/// Writes text of a model to console.out. A terminal gets U+FFFD for control characters but tab and newline, because
/// they could change the terminal.
void show(const Console& console, std::string_view text);

/// Ends a command's output. Throws std::runtime_error if it could not be written.
void finish(const Console& console);

}  // namespace infer
