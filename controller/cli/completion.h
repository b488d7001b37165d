#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace cli {

/// The script that makes a shell ("bash", "zsh", "fish") complete the command line `app`, with nothing in it that the
/// command line does not define.
std::string completion_script(const std::string& shell, const CLI::App& app);

}  // namespace cli
