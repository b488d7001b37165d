#include <pwd.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <iostream>

#include "cli/command.h"
#include "cli/interrupts.h"
#include "cli/terminal.h"
#include "jobfile/toml_value.h"
#include "schema/units.h"

namespace cli {
namespace {

constexpr const char* kProse =
    "The address of the controller and the token come from the first of: the options; MUSTER_ADDRESS, "
    "MUSTER_TOKEN_FILE\n"
    "and MUSTER_TOKEN; MUSTER_DATA_FOLDER, with its musterd.json and token; ./muster.toml,\n"
    "~/.config/muster/config.toml and /etc/muster/config.toml (keys: address, token_file); musterd's usual data "
    "folder;\n"
    "127.0.0.1:7600.\n"
    "\n"
    "Exit codes: 0 success; 1 the job failed or was cancelled; 2 wrong usage, job file or configuration, or the job's\n"
    "state does not allow it; 3 no such job or attempt; 4 controller unreachable, or it refuses the token; 5 a limit "
    "of the\n"
    "controller (a full disk, too) or the scheduler refused it; 124 wait timed out; 130 interrupted. --address and\n"
    "--token-file may also follow the command.\n"
    "\n"
    "  musterd &                              start a controller on this machine\n"
    "  muster doctor                          is everything in place?\n"
    "  muster submit --follow job.toml        train, and watch\n"
    "  muster submit --help                   every key of a job file";

int run_version(Session&, const JsonOption& options) {
  if (options.json) {
    print_json(with_version({{"version", MUSTER_VERSION}}));
  } else {
    std::cout << "muster " MUSTER_VERSION "\n";
  }
  return kSuccess;
}

int run_action(Session& session, const CLI::App& app) {
  const auto name = command_name(app);
  try {
    if (const auto problem = not_utf8(app); !problem.empty()) throw Failure(kUsage, problem);
    const int code = session.action();
    std::cout << std::flush;
    if (!std::cout) throw Failure(kUsage, "cannot write to standard output; is the disk full?");
    return code;
  } catch (const Failure& failure) {
    std::cout << std::flush;
    std::cerr << name << ": " << failure.what() << "\n";
    return failure.exit();
  } catch (const std::exception& error) {
    std::cerr << name << ": " << error.what() << "; this is a bug in muster, please report it\n";
    return kUsage;
  }
}

/// Moves the arguments after "--" into `out`. Returns the number of the others.
int take_arguments(int argc, char** argv, std::vector<std::string>& out) {
  const auto end = argv + argc;
  const auto dashes = std::find_if(argv, end, [](const char* word) { return std::string_view(word) == "--"; });
  if (dashes != end) out.assign(dashes + 1, end);
  return static_cast<int>(dashes - argv);
}

}  // namespace

const Config& Session::config() {
  if (!config_) config_ = load_config(flags, usual_places());
  return *config_;
}

Client& Session::client_unconnected() {
  if (!client_) client_ = std::make_unique<Client>(config());
  return *client_;
}

Client& Session::client() {
  client_unconnected().must_connect();
  return *client_;
}

CLI::App& add_below(CLI::App& app, const std::string& name, const std::string& summary, const std::string& prose) {
  auto* sub = app.add_subcommand(name, summary);
  sub->set_help_flag("-h,--help", "Print this help");
  sub->group("Commands");
  sub->footer(prose);
  return *sub;
}

CLI::Option* add_job(CLI::App& app, std::int64_t& job) {
  return app.add_option("job", job, "The job's number, as muster list shows it")
      ->required()
      ->check(whole_number(1, INT64_MAX))
      ->type_name("JOB");
}

CLI::Option* add_jobs(CLI::App& app, std::vector<std::int64_t>& jobs) {
  return app.add_option("jobs", jobs, "The jobs' numbers, as muster list shows them")
      ->check(whole_number(1, INT64_MAX))
      ->type_name("JOB");
}

std::chrono::milliseconds duration_of(const std::string& option, const std::string& text, const std::string& example) {
  if (const auto duration = schema::parse_duration_ms(text)) return std::chrono::milliseconds(*duration);
  throw Failure(kUsage, option + " \"" + jobfile::shown(text) + "\": want a duration such as " + example);
}

std::string user_name() {
  if (const auto* entry = getpwuid(geteuid()); entry != nullptr) return entry->pw_name;
  return std::to_string(geteuid());
}

void define_version(CLI::App& app, Session& session) {
  auto options = add_action<JsonOption>(app, session, run_version);
  app.add_flag("--json", options->json, "As an object");
}

std::unique_ptr<CLI::App> make_app(Session& session) {
  auto app = std::make_unique<CLI::App>("muster submits, watches and requeues sharded training.", "muster");
  app->formatter(std::make_shared<HelpFormatter>());
  app->set_help_flag("-h,--help", "Print this help");
  app->set_version_flag("--version", "muster " MUSTER_VERSION, "Print the version");
  app->fallthrough();
  app->require_subcommand(1);
  app->footer(kProse);
  app->add_option("--address", session.flags.address, "The controller's address (default 127.0.0.1:7600)")
      ->type_name("HOST:PORT");
  app->add_option("--token-file", session.flags.token_file, "File with the controller's token")->type_name("FILE");
  for (const auto& command : commands()) {
    command.define(add_below(*app, command.name, command.summary, command.prose), session);
  }
  define_completion_words(*app->add_subcommand("__complete", "For completion scripts")->group(""), session);
  return app;
}

int run_program(int argc, char** argv) {
  signal(SIGPIPE, SIG_DFL);  // if the reader of stdout ends, such as head, the program ends quietly
  Interrupts::instance();
  Session session;
  const auto app = make_app(session);
  if (argc < 2) {
    std::cerr << app->help();
    return kUsage;
  }
  if (command_word(argc, argv) == "submit") argc = take_arguments(argc, argv, session.arguments);
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app->exit(error);
    std::cerr << usage_problem(*app, error, argc, argv) << "\n";
    return kUsage;
  }
  return run_action(session, *app);
}

}  // namespace cli
