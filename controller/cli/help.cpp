#include <algorithm>
#include <iostream>

#include "cli/command.h"

namespace cli {
namespace {

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

void define_help(CLI::App& app, Session& session) {
  auto options = add_action<HelpOptions>(app, session, run_help);
  options->app = app.get_parent();
  app.add_option("commands", options->words, "The command to explain, such as submit or admin partition")
      ->type_name("COMMAND");
}

}  // namespace cli
