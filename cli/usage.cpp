#include "cli/cli_command.h"

#include <algorithm>
#include <iostream>
#include <vector>

#include "base/numbers.h"
#include "base/words.h"
#include "cli/cli_text.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/toml_value.h"

namespace cli {
namespace {

/// How help shows an option's value: "JOB.toml" for a file, "{bash,zsh,fish}" for choices, "N" for a number.
std::string label_of(const CLI::Option& option) {
  const auto type = option.get_type_name();
  const auto choices = type.find('{');
  return choices == std::string::npos ? type : type.substr(choices);
}

/// The options of a command and those of the program, which may follow the command.
std::vector<std::string> long_names(const CLI::App& app, const CLI::App& command) {
  std::vector<std::string> names;
  for (const auto* from : {&command, &app}) {
    for (const auto* option : from->get_options()) {
      for (const auto& name : option->get_lnames()) names.push_back("--" + name);
    }
  }
  return names;
}

std::string unexpected(const CLI::App& app, const CLI::App& command) {
  const auto rest = app.remaining(true);
  const auto word = rest.empty() ? std::string() : rest.front();
  if (!word.starts_with("-")) return "\"" + jobfile::shown(word) + "\" is one argument too many";
  const auto near = base::nearest(word, long_names(app, command));
  return "there is no option " + jobfile::shown(word) + (near.empty() ? "" : ", did you mean " + near);
}

/// Names of commands in other programs, and muster's name for each.
constexpr std::pair<const char*, const char*> kOtherNames[] = {
    {"delete", "rm"},   {"describe", "show"}, {"get", "show"},       {"info", "show"},      {"jobs", "list"},
    {"kill", "cancel"}, {"log", "logs"},      {"ls", "list"},        {"open", "dashboard"}, {"ps", "list"},
    {"queue", "list"},  {"remove", "rm"},     {"resume", "requeue"}, {"retry", "requeue"},  {"run", "submit"},
    {"squeue", "list"}, {"sbatch", "submit"}, {"scancel", "cancel"}, {"start", "submit"},   {"stop", "cancel"},
    {"tail", "logs"},   {"ui", "dashboard"},  {"web", "dashboard"}};

/// The command that was probably meant; empty: not known.
std::string meant_by(const std::string& word, const std::vector<std::string>& names) {
  for (const auto& [other, own] : kOtherNames) {
    if (word == other && std::ranges::find(names, own) != names.end()) return own;
  }
  return base::nearest(word, names);
}

/// The message for an unknown command: `there is no command "shwo", did you mean muster show`. `names`: the commands of
/// `program`.
std::string no_such_command(const std::string& program, const std::string& word,
                            const std::vector<std::string>& names) {
  const auto near = meant_by(word, names);
  return "there is no command \"" + jobfile::shown(word) + "\"" +
         (near.empty() ? "" : ", did you mean " + program + " " + near);
}

std::vector<std::string> names_below(const CLI::App& command) {
  std::vector<std::string> names;
  for (const auto* below : command.get_subcommands([](const CLI::App*) { return true; })) {
    names.push_back(below->get_name());
  }
  return names;
}

/// The problem with a command that needs a command below it.
std::string missing_below(const CLI::App& app, const CLI::App& command) {
  const auto names = names_below(command);
  if (names.empty()) return {};
  const auto all = joined(names);
  const auto rest = app.remaining(true);
  if (rest.empty()) return "want one of " + all;
  const auto near = meant_by(rest.front(), names);
  return "there is no command \"" + jobfile::shown(rest.front()) + "\"" +
         (near.empty() ? ", want one of " + all : ", did you mean " + near);
}

std::string missing(const CLI::App& app, const CLI::App& command, const CLI::ParseError& error) {
  if (const auto below = missing_below(app, command); !below.empty()) return below;
  for (const auto* option : command.get_options()) {
    if (option->get_positional() && option->get_required() && option->count() == 0) return "want " + label_of(*option);
  }
  return error.what();
}

/// True if the parser took the value of an unknown option for an argument, and refused it.
bool is_value_of_unknown_option(const CLI::App& app, const CLI::ParseError& error) {
  const auto rest = app.remaining(true);
  return dynamic_cast<const CLI::ValidationError*>(&error) != nullptr && !rest.empty() && rest.front().starts_with("-");
}

std::string problem_of(const CLI::App& app, const CLI::App& command, const CLI::ParseError& error) {
  const std::string text = error.what();
  const bool extra = dynamic_cast<const CLI::ExtrasError*>(&error) != nullptr;
  if (extra || is_value_of_unknown_option(app, error)) return unexpected(app, command);
  if (dynamic_cast<const CLI::RequiredError*>(&error) != nullptr) {
    if (&command != &app) return missing(app, command, error);
    return app.remaining(true).empty() ? "want a command" : unexpected(app, app);
  }
  if (dynamic_cast<const CLI::ArgumentMismatch*>(&error) != nullptr && text.find(':') != std::string::npos) {
    return text.substr(0, text.find(':')) + " wants a value";
  }
  return text;
}

std::string default_of(const spec::Key& field) {
  if (!field.derived.empty()) return "(" + std::string(field.derived) + ")";
  if (field.standard.empty()) return "";
  const bool quoted = field.kind == spec::Kind::kChoice || field.kind == spec::Kind::kDuration ||
                      field.kind == spec::Kind::kSize || field.kind == spec::Kind::kText;
  return quoted ? "\"" + std::string(field.standard) + "\"" : std::string(field.standard);
}

std::string choices_of(const spec::Key& field) {
  const auto choices = base::split(field.choices, ' ');
  return choices.size() > 1 ? " One of " + joined(choices) + "." : "";
}

/// The form of the rows of a table whose keys people choose; nullptr: the kind is no such table.
const char* row_of_table(spec::Kind kind) {
  if (kind == spec::Kind::kVariables) return "NAME = \"value\"";
  if (kind == spec::Kind::kPatterns) return "SERIES = 'PATTERN'";
  if (kind == spec::Kind::kSweep) return "KEY = [value, ...]";
  return kind == spec::Kind::kOptions ? "OPTION = \"value\"" : nullptr;
}

struct HelpOptions {
  std::vector<std::string> words;
  CLI::App* app = nullptr;
};

int run_help(Session&, const HelpOptions& options) {
  auto* app = options.app;
  auto name = app->get_name();
  for (const auto& word : options.words) {
    const auto names = names_below(*app);
    if (std::ranges::find(names, word) == names.end()) throw Failure(kUsage, no_such_command(name, word, names));
    app = app->get_subcommand(word);
    name += " " + word;
  }
  // app->help() would print the help of the command that was parsed, which is this one.
  std::cout << app->get_formatter()->make_help(app, name, CLI::AppFormatMode::Normal);
  return kSuccess;
}

}  // namespace

std::string key_help(std::size_t width) {
  std::string text, table;
  for (const auto& field : jobfile::job_keys()) {
    const auto dot = field.name.find('.');
    const auto inside = dot == std::string_view::npos ? std::string() : std::string(field.name.substr(0, dot));
    if (const auto* row = row_of_table(field.kind); row != nullptr) {
      text += "[" + std::string(field.name) + "]\n  " + row + "\n";
    } else {
      if (inside != table) text += "[" + inside + "]\n";
      table = inside;
      const auto standard = default_of(field);
      text += (inside.empty() ? "" : "  ") + std::string(inside.empty() ? field.name : field.name.substr(dot + 1));
      text += (standard.empty() ? "" : " = " + standard) + "\n";
    }
    for (const auto& line : wrapped(std::string(field.meaning) + choices_of(field), width - 6)) {
      text += "      " + line + "\n";
    }
  }
  return text;
}

HelpFormatter::HelpFormatter() {
  label("SUBCOMMAND", "COMMAND");
  label("Positionals", "Arguments");
}

std::string HelpFormatter::make_option_name(const CLI::Option* option, bool is_positional) const {
  return is_positional ? label_of(*option) : CLI::Formatter::make_option_name(option, false);
}

std::string HelpFormatter::make_option_opts(const CLI::Option* option) const {
  if (option->get_positional() || option->get_type_size() == 0) return {};
  return " " + label_of(*option) + (option->get_default_str().empty() ? "" : " = " + option->get_default_str());
}

std::string HelpFormatter::make_option_usage(const CLI::Option* option) const {
  const auto text = label_of(*option) + (option->get_expected_max() > 1 ? "..." : "");
  return option->get_required() ? text : "[" + text + "]";
}

CLI::Validator whole_number(std::int64_t low, std::int64_t high) {
  const auto check = [low, high](const std::string& text) -> std::string {
    const auto number = base::whole_number<std::int64_t>(text);
    if (number && *number >= low && *number <= high) return {};
    auto wanted = "want a whole number from " + std::to_string(low);
    if (high < INT32_MAX) wanted += " to " + std::to_string(high);
    return wanted + ", not \"" + jobfile::shown(text) + "\"";
  };
  return {check, ""};
}

int command_place(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string_view text = argv[i];
    if (text == "--address" || text == "--token-file") {
      ++i;
    } else if (!text.starts_with("-")) {
      return i;
    }
  }
  return argc;
}

std::string command_word(int argc, char** argv) {
  const int place = command_place(argc, argv);
  return place < argc ? argv[place] : "";
}

std::string command_name(const CLI::App& app) {
  auto name = app.get_name();
  for (const auto* command = &app; !command->get_subcommands().empty();) {
    command = command->get_subcommands().front();
    name += " " + command->get_name();
  }
  return name;
}

std::string not_utf8(const CLI::App& app) {
  for (const auto* option : app.get_options()) {
    // A file may have any name. A variable's value may be a secret, so it is refused elsewhere without showing it.
    if (const auto type = label_of(*option); type == "FILE" || type == "JOB.toml" || type == "NAME[=VALUE]") continue;
    for (const auto& text : option->results()) {
      if (base::is_utf8(text)) continue;
      return (option->get_positional() ? label_of(*option) : option->get_name()) + " \"" + jobfile::shown(text) +
             "\": want UTF-8; check this terminal's settings with locale, or rename the file";
    }
  }
  for (const auto* command : app.get_subcommands()) {
    if (auto problem = not_utf8(*command); !problem.empty()) return problem;
  }
  return {};
}

std::string usage_problem(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv) {
  const auto* command = &app;
  while (!command->get_subcommands().empty()) command = command->get_subcommands().front();
  if (command != &app) {
    const auto name = command_name(app);
    return name + ": " + problem_of(app, *command, error) + "; see " + name + " --help";
  }
  const auto word = command_word(argc, argv);
  if (word.empty()) return "muster: " + problem_of(app, app, error) + "; see muster --help";
  std::vector<std::string> names;
  for (const auto& each : commands()) names.push_back(each.name);
  return "muster: " + no_such_command("muster", word, names) + "; see muster --help";
}

void define_help(CLI::App& app, Session& session) {
  auto options = add_action<HelpOptions>(app, session, run_help);
  options->app = app.get_parent();
  app.add_option("commands", options->words, "The command to explain, such as submit or admin partition")
      ->type_name("COMMAND");
}

}  // namespace cli
