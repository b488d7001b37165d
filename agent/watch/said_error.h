#pragma once

#include <string>

#include "agent/watch/log_lines.h"

namespace agent::watch {

/// What nobody's last words look like, but a tool, a shell or a logger may say. The program ended with it only where
/// nothing comes after it.
std::string said_error(const log::Lines& lines);

}  // namespace agent::watch
