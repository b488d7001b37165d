#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <functional>
#include <iostream>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "cli/cli_config.h"
#include "cli/client.h"
#include "cli/output.h"

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
void define_init(CLI::App& app, Session& session);        // init.cpp
void define_plan(CLI::App& app, Session& session);        // plan_view.cpp
void define_data(CLI::App& app, Session& session);        // other_programs.cpp
void define_list(CLI::App& app, Session& session);        // list.cpp
void define_top(CLI::App& app, Session& session);         // top.cpp
void define_show(CLI::App& app, Session& session);        // show.cpp
void define_why(CLI::App& app, Session& session);         // show.cpp
void define_spec(CLI::App& app, Session& session);        // show.cpp
void define_events(CLI::App& app, Session& session);      // show.cpp
void define_logs(CLI::App& app, Session& session);        // log_view.cpp
void define_metrics(CLI::App& app, Session& session);     // metrics.cpp
void define_trace(CLI::App& app, Session& session);       // trace_command.cpp
void define_stacks(CLI::App& app, Session& session);      // stacks.cpp
void define_results(CLI::App& app, Session& session);     // results.cpp
void define_wait(CLI::App& app, Session& session);        // follow.cpp
void define_cancel(CLI::App& app, Session& session);      // control.cpp
void define_requeue(CLI::App& app, Session& session);     // control.cpp
void define_hold(CLI::App& app, Session& session);        // control.cpp
void define_release(CLI::App& app, Session& session);     // control.cpp
void define_limit(CLI::App& app, Session& session);       // control.cpp
void define_rm(CLI::App& app, Session& session);          // control.cpp
void define_prune(CLI::App& app, Session& session);       // control.cpp
void define_partitions(CLI::App& app, Session& session);  // cluster.cpp
void define_nodes(CLI::App& app, Session& session);       // cluster.cpp
void define_admin(CLI::App& app, Session& session);       // cluster.cpp
void define_generate(CLI::App& app, Session& session);    // other_programs.cpp
void define_embed(CLI::App& app, Session& session);       // other_programs.cpp
void define_classify(CLI::App& app, Session& session);    // other_programs.cpp
void define_dashboard(CLI::App& app, Session& session);   // dashboard.cpp
void define_help(CLI::App& app, Session& session);        // usage.cpp
void define_doctor(CLI::App& app, Session& session);      // doctor.cpp
void define_completion(CLI::App& app, Session& session);  // completion.cpp
/// Answers completion scripts: "WORD<tab>meaning" a line. Prints nothing if the controller does not answer soon.
void define_completion_words(CLI::App& app, Session& session);  // completion.cpp
void define_version(CLI::App& app, Session& session);           // program.cpp

/// Adds a command below the program or another command, with its own help.
CLI::App& add_below(CLI::App& app, const std::string& name, const std::string& summary, const std::string& prose);

/// Keeps the options of a command alive as long as the parser may write into them.
template <typename Options>
std::shared_ptr<Options> add_action(CLI::App& app, Session& session, int (*run)(Session&, const Options&)) {
  auto options = std::make_shared<Options>();
  app.callback(
      [&session, options, run] { session.action = [&session, options, run] { return run(session, *options); }; });
  return options;
}

/// The options of commands that have only --json.
struct JsonOption {
  bool json = false;
};

/// The options of commands that show one or several jobs.
struct JobsOptions {
  std::vector<std::int64_t> jobs;
  bool json = false;
};

/// Adds the positional argument JOB, or JOB... for several.
CLI::Option* add_job(CLI::App& app, std::int64_t& job);
CLI::Option* add_jobs(CLI::App& app, std::vector<std::int64_t>& jobs);

/// Accepts whole numbers in this range. Refuses others with a plain message.
CLI::Validator whole_number(std::int64_t low, std::int64_t high);

/// Adds an option with a whole number in this range.
template <typename Number>
CLI::Option* add_number(CLI::App& app, const std::string& names, Number& number, std::int64_t low, std::int64_t high,
                        const std::string& meaning) {
  return app.add_option(names, number, meaning)->check(whole_number(low, high))->type_name("N");
}

/// The value of an option that takes a duration. Throws a Failure with this example: "90s or 12h".
std::chrono::milliseconds duration_of(const std::string& option, const std::string& text, const std::string& example);

/// Asks for one job after the other and prints each answer. As JSON, one job is an object and several are an array. A
/// job that is refused or does not exist does not stop the others. Returns the exit code of the first problem.
template <typename Ask, typename Print>
int ask_each(const std::string& command, const std::vector<std::int64_t>& jobs, bool json, Ask ask, Print print) {
  JsonRows rows(jobs.size() == 1 ? JsonRows::Form::kObject : JsonRows::Form::kArray);
  int exit = kSuccess;
  for (const auto id : jobs) {
    try {
      const auto answer = ask(id);
      json ? rows.add(json_of(answer)) : print(answer);
    } catch (const Failure& failure) {
      if (failure.exit() == kUnreachable) {
        if (json) rows.end();
        throw;
      }
      std::cerr << "muster " << command << ": " << failure.what() << "\n";
      if (exit == kSuccess) exit = failure.exit();
    }
  }
  if (json) rows.end();
  return exit;
}

// usage.cpp: help, and what is wrong with a command line.

/// Formats help. An option's value is shown as "N", "JOB" or "{bash,zsh,fish}", without the parser's type names.
class HelpFormatter : public CLI::Formatter {
 public:
  HelpFormatter();
  std::string make_option_name(const CLI::Option* option, bool is_positional) const override;
  std::string make_option_opts(const CLI::Option* option) const override;
  std::string make_option_usage(const CLI::Option* option) const override;
};

/// The place in argv of command_word(); argc: there is none.
int command_place(int argc, char** argv);

/// The first word of a command line that is neither an option nor an option's value; empty: there is none.
std::string command_word(int argc, char** argv);

/// The chosen command with its program: "muster admin partition".
std::string command_name(const CLI::App& app);

/// The problem with the first argument of the chosen command that is not valid UTF-8; empty: there is none.
std::string not_utf8(const CLI::App& app);

/// The problem with the command line and what to try next, in one line.
std::string usage_problem(const CLI::App& app, const CLI::ParseError& error, int argc, char** argv);

// program.cpp

/// Builds the parser with all commands.
std::unique_ptr<CLI::App> make_app(Session& session);

/// Parses the command line, runs the command, and prints failures on stderr. Returns the exit code.
int run_program(int argc, char** argv);

/// The user's name, for the controller's records.
std::string user_name();

}  // namespace cli
