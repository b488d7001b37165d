#pragma once

#include <string>

namespace cli {

/// The help on all keys of a job file, with defaults and meanings, table by table. Lines have at most `width`
/// characters.
std::string key_help(std::size_t width);

}  // namespace cli
