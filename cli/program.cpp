#include <pwd.h>
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <vector>

#include "base/command.h"
#include "base/numbers.h"
#include "base/words.h"
#include "cli/cli_command.h"
#include "help_texts.h"
#include "spec/jobfile/toml_value.h"

namespace cli {
namespace {

std::string version_text(const std::string& version) {
  const auto worker = base::find_program("muster-worker");
  constexpr const char* kNone = "muster-worker: not installed; recipes need it, and no other program";
  return "muster " + version + "\n" + (worker.empty() ? kNone : ask_worker_version(worker).text);
}

int run_version(Session& session, const JsonOption& options) {
  if (options.json) {
    print_json(with_version({{"version", MUSTER_VERSION}, {"build", session.version}}));
  } else {
    std::cout << version_text(session.version) << "\n";
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

std::string help_text(const std::string& name) {
  const auto found = std::ranges::find(help::kTexts, name + ".txt", &help::EmbeddedText::name);
  if (found == std::end(help::kTexts)) return {};
  return std::string(found->text.substr(0, found->text.size() - 1));  // without the file's last line end
}

std::string Command::prose() const {
  return help_text(name);
}

const Config& Session::config() {
  if (!config_) config_ = load_config(flags, usual_places());
  return *config_;
}

Client& Session::client_unconnected() {
  if (!client_) {
    client_ = std::make_unique<Client>(config(), [this] { return load_config(flags, usual_places()); });
  }
  return *client_;
}

Client& Session::client_to_be() {
  if (offer_musterd(config())) config_.reset();
  return client_unconnected();
}

Client& Session::client() {
  client_to_be().must_connect();
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
  if (const auto duration = base::parse_duration_ms(text)) return std::chrono::milliseconds(*duration);
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
  app->set_version_flag(
      "--version", [&session] { return version_text(session.version); }, "Print the version");
  app->fallthrough();
  app->require_subcommand(1);
  app->footer(help_text("muster"));
  app->add_option("--address", session.flags.address, "The controller's address (default 127.0.0.1:7600)")
      ->type_name("HOST:PORT");
  app->add_option("--token-file", session.flags.token_file, "File with the controller's token")->type_name("FILE");
  for (const auto& command : commands()) {
    command.define(add_below(*app, command.name, command.summary, command.prose()), session);
  }
  define_completion_words(*app->add_subcommand("__complete", "For completion scripts")->group(""), session);
  return app;
}

int run_program(int argc, char** argv, const char* version) {
  signal(SIGPIPE, SIG_DFL);  // if the reader of stdout ends, such as head, the program ends quietly
  if (const auto exit = become_data(argc, argv)) return *exit;
  Interrupts::instance();
  Session session;
  session.version = version;
  const auto app = make_app(session);
  if (argc < 2) {
    std::cerr << app->help();
    return kUsage;
  }
  if (const auto word = command_word(argc, argv); word == "submit" || word == "up")
    argc = take_arguments(argc, argv, session.arguments);
  try {
    app->parse(argc, argv);
  } catch (const CLI::ParseError& error) {
    if (error.get_exit_code() == 0) return app->exit(error);
    std::cerr << usage_problem(*app, error, argc, argv) << "\n";
    return kUsage;
  }
  return run_action(session, *app);
}

std::span<const Command> commands() {
  static const std::vector<Command> table{
      {"up", "Start a controller of your own on this machine", define_up},
      {"down", "End your controller; jobs that run go on", define_down},
      {"status", "Say whether the controller is up, and what it has", define_status},
      {"submit", "Submit a job file, or a command", define_submit},
      {"init", "Write a job file to begin with, with comments", define_init},
      {"plan", "Say what memory and traffic a training will need, before it is submitted", define_plan},
      {"data", "Make training data of texts, JSON lines, images and other sources", define_data},
      {"list", "List jobs, newest first", define_list},
      {"top", "Show what each rank uses: CPU, memory, GPUs", define_top},
      {"show", "Show jobs: why each is in its state, its attempts and ranks", define_show},
      {"spec", "Print a job's settings as a job file", define_spec},
      {"logs", "Print what a job's ranks wrote", define_logs},
      {"events", "Print the history of a job, or of all jobs", define_events},
      {"metrics", "Print every number that a job reports, with step time and memory, by step", define_metrics},
      {"trace", "Record steps of a running training, for Perfetto", define_trace},
      {"stacks", "Show where each rank of a job stands: the stacks of its processes", define_stacks},
      {"wait", "Wait until a job has ended, and return its result", define_wait},
      {"cancel", "Cancel jobs: their ranks save and leave, and the jobs never come back", define_cancel},
      {"requeue", "End the running attempt after a save and start the next one", define_requeue},
      {"hold", "Start no further attempt of jobs before they are released", define_hold},
      {"release", "Let held jobs start", define_release},
      {"limit", "Change a job's time limit", define_limit},
      {"rm", "Remove jobs that have ended, with their logs and checkpoints", define_rm},
      {"prune", "Remove your old jobs", define_prune},
      {"why", "Explain why a job is in its state, and what to do about it", define_why},
      {"results", "Compare the jobs of a sweep by a metric, best first", define_results},
      {"generate", "Let a model that was trained write text", define_generate},
      {"embed", "Print the vectors that a model makes of texts or images", define_embed},
      {"classify", "Print the labels that a model gives to texts", define_classify},
      {"partitions", "Show the partitions you may use, and their limits", define_partitions},
      {"nodes", "Show which job has which GPU of this machine, and Slurm's nodes", define_nodes},
      {"admin", "For admins: partitions, drain and resume, backup and restore, who changed what", define_admin},
      {"dashboard", "Print the link that opens the dashboard", define_dashboard},
      {"doctor", "Check that everything that muster needs is in place", define_doctor},
      {"uninstall", "Remove your controller with its data, after a question", define_uninstall},
      {"completion", "Print the completion script of a shell", define_completion},
      {"help", "Explain a command", define_help},
      {"version", "Print the version", define_version},
  };
  return table;
}

}  // namespace cli
