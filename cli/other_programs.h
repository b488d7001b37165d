#pragma once

#include <optional>

namespace cli {

/// Turns this process into muster-data with the words after "data" if the command line asks for `muster data`, so
/// terminal, signals and exit code are muster-data's; returns only if that fails, with the exit code after a message on
/// stderr. nullopt: another command. Call it before the process changes signals or starts threads.
std::optional<int> become_data(int argc, char** argv);

}  // namespace cli
