#pragma once

#include <string>

namespace cli {

/// Every key of a job file with its default and meaning, table by table, at most `width` wide.
std::string key_help(std::size_t width);

}  // namespace cli
