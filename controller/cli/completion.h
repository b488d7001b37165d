#pragma once

#include <CLI/CLI.hpp>
#include <string>

namespace cli {

/// The completion script of `app` for a shell ("bash", "zsh" or "fish"). It is made from the parser alone.
std::string completion_script(const std::string& shell, const CLI::App& app);

}  // namespace cli
