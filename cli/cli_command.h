#pragma once

#include <CLI/CLI.hpp>

#include <cstdint>
#include <filesystem>
#include <functional>
#include <iostream>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "cli/cli_config.h"
#include "cli/client.h"
#include "cli/output.h"

namespace cli {

/// The state that all commands share. The parser fills it. The configuration is read when a command first needs it.
class Session {
 public:
  Flags flags;
  /// The version with the commit that it was built from.
  std::string version;
  /// The arguments after "--", for the program of a command job or for musterd.
  std::vector<std::string> arguments;
  /// Runs the chosen command. Returns the exit code.
  std::function<int()> action;

  const Config& config();
  /// The connected client. Throws a Failure if the controller cannot be reached.
  Client& client();
  /// A client that has not connected yet.
  Client& client_unconnected();
  /// client_unconnected(), after an offer to start a controller where none runs; see offer_musterd().
  Client& client_to_be();

 private:
  std::optional<Config> config_;
  std::unique_ptr<Client> client_;
};

/// One command. commands() is the only list of commands; help and completion come from it.
struct Command {
  std::string name;
  std::string summary;
  void (*define)(CLI::App& app, Session& session);

  /// Shown by --help after the options: consequences and examples.
  std::string prose() const;
};
/// The text of cli/help/NAME.txt; empty: there is none.
std::string help_text(const std::string& name);
std::span<const Command> commands();

// Each file defines the commands of one subject.
using Define = void(CLI::App& app, Session& session);
Define define_up, define_down, define_status;                                     // up.cpp
Define define_uninstall;                                                          // uninstall.cpp
Define define_submit;                                                             // submit.cpp
Define define_init;                                                               // init.cpp
Define define_plan;                                                               // plan_view.cpp
Define define_data, define_generate, define_embed, define_classify;               // other_programs.cpp
Define define_list;                                                               // list.cpp
Define define_top;                                                                // top.cpp
Define define_show, define_why, define_spec, define_events;                       // show.cpp
Define define_logs;                                                               // log_view.cpp
Define define_metrics;                                                            // metrics.cpp
Define define_trace, define_stacks;                                               // ask_ranks.cpp
Define define_results;                                                            // results.cpp
Define define_wait;                                                               // follow.cpp
Define define_cancel, define_requeue, define_hold, define_release, define_limit;  // control.cpp
Define define_rm, define_prune;                                                   // control.cpp
Define define_partitions, define_nodes, define_admin;                             // cluster.cpp
Define define_admin_drain, define_admin_resume;                                   // maintenance.cpp
Define define_admin_backup, define_admin_restore;                                 // maintenance.cpp
Define define_dashboard;                                                          // dashboard.cpp
Define define_help;                                                               // usage.cpp
Define define_doctor;                                                             // doctor.cpp
Define define_completion;                                                         // completion.cpp
/// Answers completion scripts: "WORD<tab>meaning" a line. Prints nothing if the controller does not answer soon.
Define define_completion_words;  // completion.cpp
Define define_version;           // program.cpp

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

/// The help on all keys of a job file, with defaults and meanings, table by table. Lines have at most `width`
/// characters.
std::string key_help(std::size_t width);

// dashboard.cpp

/// How a person opens the dashboard.
struct DashboardLink {
  std::string link;        // opening it logs in
  std::string tunnel;      // the ssh command to run on the person's machine; empty: no tunnel is needed
  std::string listens_on;  // with a tunnel: the only machine that can reach the dashboard
};

struct DashboardFacts {
  std::string url;  // from musterd: "http://127.0.0.1:7601/"
  std::string token;
  std::string controller;      // the controller's HOST:PORT
  std::string ssh_connection;  // SSH_CONNECTION, "CLIENT PORT SERVER PORT"; empty: no ssh
  std::string user;
  bool is_on_node = false;  // the controller runs in a Slurm job: a person's own machine may not know the node
};

/// Pure. Both ends of a tunnel have the dashboard's port.
DashboardLink dashboard_link(const DashboardFacts& facts);
/// The link to the dashboard of this connected controller.
DashboardLink dashboard_link(Client& client, const muster::v1::StatusResponse& status);
/// Prints the line on stderr that a person runs first; nothing if no tunnel is needed.
void tell_tunnel(const DashboardLink& link);

// init.cpp

/// The job file of this name that `muster init` writes: "chess", or a recipe such as "causal_lm", which stands for its
/// first one. Empty: there is none. `full`: the one of full size.
std::string_view starter(std::string_view name, bool full);

/// The names that starter() knows, recipes left out.
std::vector<std::string> starters(bool full);

// other_programs.cpp

/// Turns this process into muster-data with the words after "data" if the command line asks for `muster data`, so
/// terminal, signals and exit code are muster-data's; returns only if that fails, with the exit code after a message on
/// stderr. nullopt: another command. Call it before the process changes signals or starts threads.
std::optional<int> become_data(int argc, char** argv);

/// The answer of a muster-worker to --version, which names its LibTorch, or why the program does not start.
struct WorkerVersion {
  bool starts = false;
  std::string text;
};
WorkerVersion ask_worker_version(const std::filesystem::path& worker);

/// "there is no muster-worker beside muster or in PATH, so ...; build it with ./dev build"
std::string no_program(const std::string& name, const std::string& consequence);
/// The file of a program of this project. Throws a Failure with no_program() if there is none.
std::filesystem::path must_find(const std::string& name, const std::string& consequence);
/// Becomes the program; `words` begin with its name. Throws a Failure if it cannot be started.
[[noreturn]] void become(const std::filesystem::path& program, std::vector<std::string> words);

// up.cpp

/// On a terminal, if nobody named a controller and none runs here, asks whether to start one, and starts it. Returns
/// true if it was started. Throws a Failure if it did not start.
bool offer_musterd(const Config& config);

/// Ends the musterd of the folder, after its jobs have been cancelled if `cancels`. Returns how many jobs run on;
/// nullopt: no musterd ran. Throws a Failure if it runs on another host, or does not end.
std::optional<std::int64_t> end_musterd(const std::filesystem::path& data_folder, bool cancels);

/// The states of jobs that have not ended.
std::vector<std::string> open_states();
/// How many jobs are in one of these states.
std::int64_t count_jobs(Client& client, std::vector<std::string> states);
/// "1 job runs", "2 jobs run".
std::string jobs_text(std::int64_t count, const std::string& one, const std::string& several);

/// Asks on stderr and reads the answer. `is_yes`: the meaning of an empty line.
bool person_says_yes(const std::string& question, bool is_yes = false);
/// True if a question reaches a person, who can answer it.
bool can_ask();

// program.cpp

/// Builds the parser with all commands.
std::unique_ptr<CLI::App> make_app(Session& session);

/// Parses the command line, runs the command, and prints failures on stderr. Returns the exit code.
int run_program(int argc, char** argv, const char* version);

/// The user's name, for the controller's records.
std::string user_name();

}  // namespace cli
