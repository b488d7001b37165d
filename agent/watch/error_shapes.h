#pragma once

#include <cstddef>
#include <optional>
#include <string>

#include "agent/watch/log_lines.h"

namespace agent::watch {

/// An error that a runtime has printed.
struct FoundError {
  std::string words;
  std::size_t last = 0;   // the line that it ends with
  bool of_child = false;  // what a launcher says of a program that it started
};

/// The error whose first line is line i: a traceback of Python, "terminate called", a panic, an abort, or the line of
/// an exception alone. error_line.h lists the shapes.
std::optional<FoundError> error_at(const log::Lines& lines, std::size_t i);

}  // namespace agent::watch
