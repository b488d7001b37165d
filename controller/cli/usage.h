#pragma once

#include <CLI/CLI.hpp>
#include <cstdint>
#include <string>
#include <vector>

namespace cli {

/// Help in our own words: what an option takes ("N", "JOB", "{bash,zsh,fish}") without the parser's type names.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_usage(const CLI::Option* option) const override;
};

/// Refuses all but whole numbers of that range, in words people understand.
CLI::Validator whole_number(std::int64_t low, std::int64_t high);

/// The first word of a command line that is no option and no option's value; empty: there is none.
std::string command_word(int argc, char** argv);

/// `there is no command "shwo", did you mean muster show`, for a `word` after `program` that is none of `names`.
std::string no_such_command(const std::string& program, const std::string& word, const std::vector<std::string>& names);

/// "muster admin partition": the program and the command that was chosen.
std::string command_name(const CLI::App& app);

/// What is wrong with the first text given to the chosen command that no message can carry; empty: nothing.
std::string not_utf8(const CLI::App& app);

/// What was wrong with the command line and the next thing to try, in one line.
std::string usage_problem(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv);

}  // namespace cli
