#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace cli {

/// Formats help. An option's value is shown as "N", "JOB" or "{bash,zsh,fish}", without the parser's type names.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_usage(const CLI::Option* option) const override;
};

/// Accepts whole numbers in this range. Refuses others with a plain message.
CLI::Validator whole_number(std::int64_t low, std::int64_t high);

/// The first word of a command line that is neither an option nor an option's value; empty: there is none.
std::string command_word(int argc, char** argv);

/// The message for an unknown command: `there is no command "shwo", did you mean muster show`. `names`: the commands of
/// `program`.
std::string no_such_command(const std::string& program, const std::string& word, const std::vector<std::string>& names);

/// The names of the commands below a command.
std::vector<std::string> names_below(const CLI::App& command);

/// The chosen command with its program: "muster admin partition".
std::string command_name(const CLI::App& app);

/// The problem with the first argument of the chosen command that is not valid UTF-8; empty: there is none.
std::string not_utf8(const CLI::App& app);

/// The problem with the command line and what to try next, in one line.
std::string usage_problem(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv);

}  // namespace cli
