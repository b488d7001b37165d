#include <iostream>

#include "cli/command.h"
#include "cli/usage.h"

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
    std::vector<std::string> names;
    CLI::App* chosen = nullptr;
    for (auto* below : app->get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(below->get_name());
      if (names.back() == word) chosen = below;
    }
    if (chosen == nullptr) throw Failure(kUsage, no_such_command(name, word, names));
    app = chosen;
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
