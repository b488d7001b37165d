#pragma once

#include <CLI/CLI.hpp>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/client.h"
#include "cli/config.h"

namespace cli {

/// The state that all commands share. The parser fills it. The configuration is read when a command first needs it.
class Session {
 public:
  Flags flags;
  /// The arguments after "--", for the program of a command job.
  std::vector<std::string> arguments;
  /// Runs the chosen command. Returns the exit code.
  std::function<int()> action;

  const Config& config();
  /// The connected client. Throws a Failure if the controller cannot be reached.
  Client& client();
  /// A client that has not connected yet.
  Client& client_unconnected();

 private:
  std::optional<Config> config_;
  std::unique_ptr<Client> client_;
};

/// One command. commands() is the only list of commands; help and completion come from it.
struct Command {
  std::string name;
  std::string summary;
  std::string prose;  // shown by --help after the options: consequences and examples
  void (*define)(CLI::App& app, Session& session);
};
std::span<const Command> commands();

// Each file defines the commands of one subject.
void define_submit(CLI::App& app, Session& session);      // submit.cpp
void define_list(CLI::App& app, Session& session);        // list.cpp
void define_show(CLI::App& app, Session& session);        // show.cpp
void define_spec(CLI::App& app, Session& session);        // spec.cpp
void define_logs(CLI::App& app, Session& session);        // logs.cpp
void define_events(CLI::App& app, Session& session);      // events.cpp
void define_metrics(CLI::App& app, Session& session);     // metrics.cpp
void define_wait(CLI::App& app, Session& session);        // wait.cpp
void define_cancel(CLI::App& app, Session& session);      // control.cpp
void define_requeue(CLI::App& app, Session& session);     // control.cpp
void define_hold(CLI::App& app, Session& session);        // control.cpp
void define_release(CLI::App& app, Session& session);     // control.cpp
void define_limit(CLI::App& app, Session& session);       // limit.cpp
void define_rm(CLI::App& app, Session& session);          // remove.cpp
void define_prune(CLI::App& app, Session& session);       // remove.cpp
void define_why(CLI::App& app, Session& session);         // why.cpp
void define_results(CLI::App& app, Session& session);     // results.cpp
void define_partitions(CLI::App& app, Session& session);  // partitions.cpp
void define_nodes(CLI::App& app, Session& session);       // nodes.cpp
void define_admin(CLI::App& app, Session& session);       // admin.cpp
void define_dashboard(CLI::App& app, Session& session);   // dashboard.cpp
void define_help(CLI::App& app, Session& session);        // help.cpp
void define_doctor(CLI::App& app, Session& session);      // doctor.cpp
void define_completion(CLI::App& app, Session& session);  // completion.cpp
/// Answers completion scripts: "WORD<tab>meaning" a line. Prints nothing if the controller does not answer soon.
void define_completion_words(CLI::App& app, Session& session);  // completion_words.cpp
void define_version(CLI::App& app, Session& session);           // program.cpp

/// Keeps the options of a command alive as long as the parser may write into them.
template <typename Options>
std::shared_ptr<Options> add_action(CLI::App& app, Session& session, int (*run)(Session&, const Options&)) {
  auto options = std::make_shared<Options>();
  app.callback(
      [&session, options, run] { session.action = [&session, options, run] { return run(session, *options); }; });
  return options;
}

/// Adds the positional argument JOB.
CLI::Option* add_job(CLI::App& app, std::int64_t& job);

/// Builds the parser with all commands.
std::unique_ptr<CLI::App> make_app(Session& session);

/// Parses the command line, runs the command, and prints failures on stderr. Returns the exit code.
int run_program(int argc, char** argv);

/// The user's name, for the controller's records.
std::string user_name();

}  // namespace cli
