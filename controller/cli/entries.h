#pragma once

#include <string>

namespace cli {

/// Prints "  label        text" on stdout. Further lines of the text are indented. Prints nothing if the text is empty.
void print_entry(const std::string& label, const std::string& text);
/// As print_entry(), but without line breaks, so that the path can be copied.
void print_path(const std::string& label, const std::string& path);

}  // namespace cli
