#include <unistd.h>

#include <iostream>

#include "cli/cli_command.h"
#include "cli/cli_text.h"
#include "cli/list.h"
#include "cli/own_musterd.h"
#include "cli/slurm_controller.h"
#include "cli/user_service.h"
#include "controller/core/core_text.h"
#include "slurm/option_words.h"
#include "spec/jobfile/sbatch_words.h"
#include "spec/variables.h"

namespace cli {
namespace {

using common::Running;
using muster::v1::StatusResponse;

constexpr const char* kOpenStates[]{"running", "stopping", "queued", "pending", "waiting"};
constexpr const char* kEndedStates[]{"succeeded", "failed", "cancelled"};
/// Ranks save before they leave.
constexpr std::chrono::minutes kCancelledWithin{10};
constexpr std::chrono::milliseconds kBetweenCounts{100};

/// How many jobs are in each state that has any.
std::vector<std::pair<std::string, std::int64_t>> jobs_by_state(Client& client) {
  std::vector<std::pair<std::string, std::int64_t>> found;
  const auto add = [&](const char* state) {
    if (const auto count = count_jobs(client, {state}); count > 0) found.emplace_back(state, count);
  };
  for (const char* state : kOpenStates) add(state);
  for (const char* state : kEndedStates) add(state);
  return found;
}

std::string service_text(const std::filesystem::path& data_folder, std::int64_t pid) {
  const UserService service(data_folder);
  if (service.main_pid() != pid) return {};
  return service.name() + " of systemd --user starts it again after a crash and at each boot";
}

/// True if musterd is to run in Slurm, or does.
bool is_of_slurm(const std::filesystem::path& folder) {
  if (SlurmController(folder).is_wanted()) return true;
  const auto ready = common::read_ready_file(folder);
  return ready && !ready->slurm_job.empty();
}

/// The word of Slurm about a musterd that runs there; empty: it does not.
std::string slurm_text(const std::filesystem::path& folder) {
  if (!is_of_slurm(folder)) return {};
  try {
    return SlurmController::text_of(SlurmController(folder).look());
  } catch (const Failure& failure) {
    return failure.what();
  }
}

nlohmann::ordered_json slurm_json(const std::filesystem::path& folder) {
  try {
    const auto standing = SlurmController(folder).look();
    nlohmann::ordered_json object = {{"job", nullptr}, {"node", nullptr}, {"ends", nullptr}, {"next_job", nullptr}};
    if (const auto& job = standing.running; job) {
      object["job"] = to_string(job->id);
      object["node"] = job->node_list;
      if (job->ends) object["ends"] = core::utc_text(*job->ends);
    }
    if (!standing.queued.empty()) object["next_job"] = to_string(standing.queued.front().id);
    return object;
  } catch (const Failure& failure) {
    return {{"problem", failure.what()}};
  }
}

/// Says if other commands go to another controller than this one.
void warn_of_another(Session& session, const std::string& address) {
  const auto config = load_config(session.flags, usual_places());
  if (config.address.value == address) return;
  std::cerr << "muster: other commands go to " << config.address.value << " (" << config.address.source
            << ") and not to this musterd; take that setting away to use this one\n";
}

void print_notes(const StatusResponse& status) {
  for (const auto& problem : status.problems()) print_entry("problem", problem);
  for (const auto& note : status.notes()) print_entry("note", note);
}

struct UpOptions {
  bool no_service = false, in_slurm = false;
  std::string partition, account, qos, time;
  std::vector<std::string> sbatch;
};

/// The options of sbatch by their long names. Throws a Failure.
slurm::Options options_of_sbatch(const UpOptions& options) {
  slurm::Options asked;
  const auto read = slurm::read_option_words(options.sbatch, slurm::Reader::kSbatch);
  if (!read.problems.empty()) throw Failure(kUsage, "--sbatch " + read.problems.front());
  if (!read.others.empty()) {
    throw Failure(kUsage, "--sbatch \"" + read.others.front() + "\": want options of sbatch such as --sbatch=--mem=2G");
  }
  for (const auto& option : read.options) asked[option.name] = option.value;
  for (const auto& [name, value] : {std::pair{"partition", &options.partition}, std::pair{"account", &options.account},
                                    std::pair{"qos", &options.qos}, std::pair{"time", &options.time}}) {
    if (!value->empty()) asked[name] = *value;
  }
  if (const auto time = asked.find("time"); time != asked.end()) {
    time->second = jobfile::as_duration(time->second.value_or(""));
  }
  return asked;
}

/// Starts musterd in Slurm, or finds the one that is to run there.
Started start_in_slurm(const std::filesystem::path& folder, const std::vector<std::string>& flags,
                       const slurm::Options& asked) {
  SlurmController slurm(folder);
  const bool was_there = slurm.look().is_any_left();
  const auto running = common::who_runs(folder);
  if (!was_there && running.kind != Running::Kind::kNone && !is_of_slurm(folder)) {
    throw Failure(kUsage, running.why + ": end it with muster down first");
  }
  if (!was_there || !slurm.is_wanted())
    slurm.start(command_of({.data_folder = folder, .flags = flags, .in_slurm = true}), asked);
  return {slurm.wait_for_ready(), was_there, {}};
}

/// True if a Slurm job of musterd is left. Where none is, what the last one has left is removed, so that musterd may
/// run elsewhere.
bool is_left_in_slurm(const std::filesystem::path& folder) {
  if (!is_of_slurm(folder)) return false;
  SlurmController slurm(folder);
  if (slurm.look().is_any_left()) return true;
  slurm.stop();
  return false;
}

int run_up(Session& session, const UpOptions& options) {
  const auto folder = session.config().data_folder;
  const auto asked = options_of_sbatch(options);
  if (!options.in_slurm && !asked.empty()) {
    throw Failure(kUsage, "--" + asked.begin()->first + " is for a Slurm job: add --in-slurm");
  }
  const bool in_slurm = options.in_slurm || is_left_in_slurm(folder);
  const auto started = in_slurm ? start_in_slurm(folder, session.arguments, asked)
                                : start_musterd({folder, session.arguments, !options.no_service});
  if (started.was_there && !(session.arguments.empty() && asked.empty())) {
    std::cerr << "muster: musterd ran already, so " << (asked.empty() ? "" : "the options for Slurm and ")
              << "the flags after -- were not used: muster down, then muster up\n";
  }
  Client client(config_of(started.ready));
  client.must_connect();
  const auto status = client.call(&AdminStub::Status, muster::v1::StatusRequest());
  const auto link = dashboard_link(client, status);
  std::cout << "musterd " << status.version() << (started.was_there ? " runs already" : " runs") << " (process "
            << status.pid() << ")\n";
  print_path("data", status.data_folder());
  print_path("log", log_of(folder).native());
  if (in_slurm) {
    print_entry("slurm", slurm_text(folder));
  } else {
    const auto service = service_text(folder, status.pid());
    print_entry("service", !service.empty() ? service
                           : started.no_service.empty()
                               ? "none: after a reboot say muster up again"
                               : "none: after a reboot say muster up again; " + started.no_service);
  }
  if (const auto open = count_jobs(client, open_states()); open > 0)
    print_entry("jobs", jobs_text(open, "goes on", "go on"));
  print_path("dashboard", link.link);
  print_notes(status);
  print_entry("next", "muster submit JOB.toml; muster init writes a job file; muster status; muster down ends musterd");
  std::cout << std::flush;
  tell_tunnel(link);
  warn_of_another(session, client.address());
  return kSuccess;
}

/// Cancels all jobs, and returns when all have ended.
void cancel_all(Client& client) {
  const auto jobs = list_jobs(client, {.states = open_states(), .limit = UINT32_MAX}).jobs;
  if (jobs.empty()) return;
  std::cerr << "muster: cancelling " << core::count_text(jobs.size(), "job") << ", whose ranks save first\n";
  for (const auto& job : jobs) {
    muster::v1::CancelRequest request;
    request.set_job_id(job.id());
    request.set_user(user_name());
    muster::v1::Job answer;
    const auto status = client.try_call([&](auto* context) { return client.jobs().Cancel(context, request, &answer); });
    // One that has ended meanwhile can't be cancelled, and need not be.
    if (!status.ok() && status.error_code() != grpc::StatusCode::FAILED_PRECONDITION) throw client.failure(status);
  }
  const auto end = std::chrono::steady_clock::now() + kCancelledWithin;
  while (const auto left = count_jobs(client, open_states())) {
    if (std::chrono::steady_clock::now() >= end) {
      throw Failure(kTimedOut, jobs_text(left, "has", "have") + " not ended within " +
                                   std::to_string(kCancelledWithin.count()) +
                                   " minutes, so musterd goes on: muster why tells what they wait for");
    }
    Interrupts::instance().sleep(kBetweenCounts);
  }
}

struct DownOptions {
  bool cancel = false;
};

int run_down(Session& session, const DownOptions& options) {
  const auto folder = session.config().data_folder;
  const auto left = end_musterd(folder, options.cancel);
  if (!left) {
    std::cout << "no musterd runs on " << folder.native() << "\n";
  } else {
    std::cout << "musterd has ended"
              << (*left > 0 ? "; " + jobs_text(*left, "runs", "run") + " on, and the next muster up goes on with them"
                            : "")
              << "\n";
  }
  return kSuccess;
}

int tell_down(Client& client, bool wants_json) {
  const auto& config = client.config();
  const auto why = client.unreachable_text();
  if (wants_json) {
    auto object = with_version({{"up", false}, {"reason", why}, {"data_folder", config.data_folder.native()}});
    if (is_of_slurm(config.data_folder)) object["slurm"] = slurm_json(config.data_folder);
    print_json(object);
  } else {
    std::cout << "down: " << why << "\n";
    print_entry("slurm", slurm_text(config.data_folder));
    std::cout << std::flush;
    std::cerr << "muster: " << client.start_remedy() << "\n";
  }
  return kUnreachable;
}

int run_status(Session& session, const JsonOption& options) {
  auto& client = session.client_unconnected();
  if (!client.meet()) return tell_down(client, options.json);
  const auto status = client.call(&AdminStub::Status, muster::v1::StatusRequest());
  const auto jobs = jobs_by_state(client);
  if (options.json) {
    auto object = json_of(status);
    object["up"] = true;
    object["address"] = client.address();
    if (is_of_slurm(status.data_folder())) object["slurm"] = slurm_json(status.data_folder());
    object["jobs"] = nlohmann::ordered_json::object();
    for (const auto& [state, count] : jobs) object["jobs"][state] = count;
    print_json(object);
    return kSuccess;
  }
  std::cout << "up: musterd " << status.version() << ", process " << status.pid() << ", since "
            << utc_text(status.started_at()) << " (" << span_text(status.started_at(), "") << ")\n";
  std::string counts;
  for (const auto& [state, count] : jobs) append(counts, std::to_string(count) + " " + state);
  print_entry("jobs", counts.empty() ? "none yet" : counts);
  print_path("data", status.data_folder());
  print_path("address", client.address() + " (" + client.config().address.source + ")");
  if (!status.dashboard_url().empty()) {
    print_entry("dashboard", status.dashboard_url() + "; muster dashboard prints a link that logs in");
  }
  print_entry("service", service_text(status.data_folder(), status.pid()));
  print_entry("slurm", slurm_text(status.data_folder()));
  print_notes(status);
  return kSuccess;
}

}  // namespace

std::int64_t count_jobs(Client& client, std::vector<std::string> states) {
  return list_jobs(client, {.states = std::move(states), .limit = 1}).total;
}

std::vector<std::string> open_states() {
  return {std::begin(kOpenStates), std::end(kOpenStates)};
}

std::string jobs_text(std::int64_t count, const std::string& one, const std::string& several) {
  return core::count_text(static_cast<std::size_t>(count), "job") + " " + (count == 1 ? one : several);
}

namespace {

/// Asks the musterd how many jobs run, after it has cancelled all if that is wanted.
std::int64_t count_left(const common::ReadyFile& ready, bool cancels) {
  Client client(config_of(ready));
  if (client.meet()) {
    if (cancels) cancel_all(client);
    return count_jobs(client, {"running", "stopping"});
  }
  if (cancels) throw client.unreachable();
  return 0;
}

/// end_musterd() of one that runs in Slurm, or is to.
std::optional<std::int64_t> end_in_slurm(const std::filesystem::path& data_folder, bool cancels) {
  SlurmController slurm(data_folder);
  const auto standing = slurm.look();
  const auto ready = common::read_ready_file(data_folder);
  if (standing.is_any_left() && cancels && !ready) {
    throw Failure(kUnreachable, SlurmController::text_of(standing) + ": --cancel needs a musterd that runs");
  }
  std::optional<std::int64_t> left;
  if (standing.is_any_left()) left = standing.running && ready ? count_left(*ready, cancels) : 0;
  slurm.stop();
  return left;
}

}  // namespace

std::optional<std::int64_t> end_musterd(const std::filesystem::path& data_folder, bool cancels) {
  if (is_of_slurm(data_folder)) return end_in_slurm(data_folder, cancels);
  const auto running = settled(data_folder);
  if (running.kind == Running::Kind::kElsewhere) throw Failure(kUsage, running.why + ": say muster down there");
  if (running.kind == Running::Kind::kNone) {
    // The manager may be about to start it again. Of a home that machines share, it may be the manager of another one.
    try {
      if (const UserService service(data_folder); service.is_written()) service.stop();
    } catch (const Failure& failure) {
      std::cerr << "muster: " << failure.what() << "\n";
    }
    return std::nullopt;
  }
  const auto left = count_left(*running.ready, cancels);
  stop_musterd(running);
  return left;
}

bool can_ask() {
  return isatty(STDIN_FILENO) == 1 && stderr_is_terminal();
}

bool person_says_yes(const std::string& question, bool is_yes) {
  std::cerr << question << (is_yes ? " [Y/n] " : " [y/N] ") << std::flush;
  std::string answer;
  if (!std::getline(std::cin, answer)) {
    std::cerr << "\n";
    return false;
  }
  return answer == "y" || answer == "Y" || answer == "yes" || (is_yes && answer.empty());
}

bool offer_musterd(const Config& config) {
  const bool is_in_rank = usual_places().variable(spec::variable::kAttemptFolder).has_value();
  if (!config.is_absent || is_in_rank || !can_ask()) return false;
  if (common::who_runs(config.data_folder).kind == Running::Kind::kElsewhere) return false;
  if (is_of_slurm(config.data_folder)) return false;
  if (!person_says_yes("No musterd of yours runs on this machine. Start one now (muster up)?", true)) return false;
  const auto started = start_musterd({config.data_folder});
  std::cerr << "muster: musterd runs (process " << started.ready.pid << "); muster down ends it\n";
  return true;
}

void define_up(CLI::App& app, Session& session) {
  auto options = add_action<UpOptions>(app, session, run_up);
  app.add_flag("--no-service", options->no_service, "Start musterd detached, also where systemd --user could run it");
  app.add_flag("--in-slurm", options->in_slurm, "Run musterd in a small Slurm job, which the next one follows");
  app.add_option("--partition", options->partition, "With --in-slurm: the partition of the job")->type_name("NAME");
  app.add_option("--account", options->account, "With --in-slurm: the account of the job")->type_name("NAME");
  app.add_option("--qos", options->qos, "With --in-slurm: the quality of service of the job")->type_name("NAME");
  app.add_option("--time", options->time,
                 "With --in-slurm: the time limit of each job (default: the partition's, else 1d)")
      ->type_name("TIME");
  app.add_option("--sbatch", options->sbatch, "With --in-slurm: another option of sbatch, such as --sbatch=--mem=2G")
      ->type_name("OPTION");
}

void define_down(CLI::App& app, Session& session) {
  auto options = add_action<DownOptions>(app, session, run_down);
  app.add_flag("--cancel", options->cancel, "Cancel all jobs first, and wait until they have ended");
}

void define_status(CLI::App& app, Session& session) {
  auto options = add_action<JsonOption>(app, session, run_status);
  app.add_flag("--json", options->json, "As an object; up is true or false");
}

}  // namespace cli
