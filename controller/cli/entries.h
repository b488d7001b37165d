#pragma once

#include <string>

namespace cli {

/// "  label        text" on stdout, the text wrapped below itself; nothing if it is empty.
void print_entry(const std::string& label, const std::string& text);
/// The same, not wrapped, so that it can be copied.
void print_path(const std::string& label, const std::string& path);

}  // namespace cli
