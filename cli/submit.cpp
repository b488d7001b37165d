#include "cli/submit.h"

#include <algorithm>
#include <iostream>
#include <random>

#include "cli/cli_text.h"
#include "controller/core/core_text.h"
#include "spec/jobfile/job_keys.h"
#include "spec/jobfile/spec.h"

namespace cli {
namespace {

constexpr std::chrono::seconds kSweepLimit{120};  // a transaction may store ten thousand jobs
constexpr std::size_t kMostBytes = 31 << 20;      // the controller's limit for one call

/// How long a submission waits for a controller that restarts.
constexpr std::chrono::seconds kPatience{20};
constexpr std::chrono::milliseconds kPause{250};

/// A unique id for a submission: 32 hexadecimal digits.
std::string fresh_request_id() {
  std::random_device random;
  std::string id;
  for (int i = 0; i < 4; ++i) {
    char part[9];
    std::snprintf(part, sizeof part, "%08x", static_cast<unsigned>(random()));
    id += part;
  }
  return id;
}

/// Connects, and tries again until kPatience has passed, so that a submission survives a restart of the controller.
/// Says once on stderr that it waits.
void connect_patiently(Client& client) {
  const auto deadline = Contact::Clock::now() + kPatience;
  for (bool told = false; !client.meet();) {
    if (Contact::Clock::now() >= deadline) throw client.unreachable();
    if (!told) {
      if (client.is_wrong_port()) throw client.unreachable();
      std::cerr << "muster: " << client.unreachable_text() << ", trying for " << kPatience.count() << " s; "
                << client.start_remedy() << "\n";
    }
    told = true;
    Interrupts::instance().sleep(kPause);
  }
}

/// Repeats the call until there is an answer. The request id keeps a lost answer from becoming a second job. Each try
/// may take `limit`. Throws a Failure after kPatience.
void submit_surely(Client& client, const Client::Ask& submit, std::chrono::seconds limit = Client::kCallLimit) {
  Tries tries{Contact::Clock::now() + kPatience};
  connect_patiently(client);
  while (true) {
    const auto status = client.try_call(submit, limit);
    if (status.ok()) return;
    ask_again(client, status, tries);
  }
}

/// Prints the controller's whole answer, or only the id.
template <typename Answer, typename Id>
void print_answer(const SubmitOptions& options, const Answer& answer, const Id& id) {
  if (options.json) {
    print_json(json_of(answer));
  } else {
    std::cout << id << "\n";
  }
  std::cout << std::flush;
}

/// A call about all jobs of the request.
template <typename Call>
Call call_of(const Request& request) {
  Call call;
  for (const auto& spec : request.specs) *call.add_specs() = spec;
  call.set_user(user_name());
  call.set_parallel(request.parallel);
  return call;
}

muster::v1::PlanScriptRequest script_call_of(const Request& request) {
  auto call = call_of<muster::v1::PlanScriptRequest>(request);
  call.set_is_sweep(request.is_sweep);
  return call;
}

/// Names keys that have no effect in this job, and data and models of the jobs that are not there now. Where an "auto"
/// job runs, musterd knows: muster show has its notes.
void tell_notes(const Request& request) {
  const auto& first = request.specs.front();
  const bool is_local = first.executor() == "local" || first.executor() == "debug";
  auto notes = jobfile::idle_keys(first, false, is_local);
  for (const auto& spec : request.specs) {
    for (auto& note : jobfile::missing_inputs(spec)) {
      if (std::ranges::find(notes, note) == notes.end()) notes.push_back(std::move(note));
    }
  }
  for (const auto& note : notes) std::cerr << "muster submit: note: " << note << "\n";
}

/// The origin of the settings, if it is not a job file.
std::string like_text(const Request& request) {
  if (request.like == 0) return "";
  const auto id = std::to_string(request.like);
  const bool took = request.specs.front().submitted_env_size() > 0;
  return ", with the settings" + std::string(took ? " and the submitter's environment" : "") + " of job " + id;
}

int submit_job(Session& session, const SubmitOptions& options, const Request& wanted) {
  const auto& spec = wanted.specs.front();
  muster::v1::SubmitRequest request;
  *request.mutable_spec() = spec;
  request.set_request_id(fresh_request_id());
  request.set_user(user_name());
  auto& client = session.client_to_be();
  muster::v1::SubmitResponse response;
  submit_surely(client, [&](auto* context) { return client.jobs().Submit(context, request, &response); });
  const auto id = response.job_id();
  print_answer(options, response, id);
  if (options.follow) return follow(client, spec, id);
  if (options.wait) {
    muster::v1::Job job;
    const auto end = wait_for_end(client, id, &job);
    return tell_end(client, end, id, job);
  }
  std::cerr << "muster: submitted " << spec.name() << " as job " << id << like_text(wanted)
            << (spec.hold() ? ", held; start it with muster release " : "; follow it with muster logs ") << id
            << (spec.hold() ? "\n" : " -f\n");
  return kSuccess;
}

std::string submitted_jobs_text(const muster::v1::SubmitSweepResponse& response) {
  const auto& ids = response.job_ids();
  const auto count = core::count_text(static_cast<std::size_t>(ids.size()), "job");
  if (ids.empty()) return count;
  const bool in_a_row = *ids.rbegin() - *ids.begin() + 1 == ids.size();
  return count + ", " + std::to_string(*ids.begin()) +
         (ids.size() == 1 ? "" : (in_a_row ? " to " : " and others to ") + std::to_string(*ids.rbegin()));
}

/// Waits for the jobs one after the other. A job that has ended in the meantime needs no wait.
int wait_for_all(Client& client, const muster::v1::SubmitSweepResponse& response) {
  int succeeded = 0;
  std::string others;
  for (const auto id : response.job_ids()) {
    muster::v1::Job job;
    const auto end = wait_for_end(client, id, &job);
    if (end != StreamEnd::kComplete) {
      std::cerr << "muster: sweep " << response.sweep() << " goes on; watch it with muster list -w --sweep "
                << response.sweep() << ", cancel it with muster cancel --sweep " << response.sweep() << "\n";
      return end == StreamEnd::kTimedOut ? kTimedOut : kInterrupted;
    }
    if (job.state() == "succeeded") {
      ++succeeded;
      continue;
    }
    std::cerr << "muster: job " << id << " " << outcome_text(job) << "\n";
    append(others, std::to_string(id));
  }
  std::cerr << "muster: sweep " << response.sweep() << ": " << succeeded << " of " << response.job_ids_size()
            << " succeeded" << (others.empty() ? "" : "; look at muster show " + others) << "; muster results --sweep "
            << response.sweep() << " compares them\n";
  return others.empty() ? kSuccess : kJobFailed;
}

/// Moves the submitter's variables, which all jobs share, into one place of the call. With ten thousand jobs they would
/// be most of its size.
void share_submitted_env(muster::v1::SubmitSweepRequest& call) {
  const auto& first = call.specs(0).submitted_env();
  const auto has_them = [&](const muster::v1::JobSpec& spec) {
    const auto& own = spec.submitted_env();
    return own.size() == first.size() && std::ranges::all_of(own, [&](const auto& variable) {
             const auto found = first.find(variable.first);
             return found != first.end() && found->second == variable.second;
           });
  };
  if (!std::ranges::all_of(call.specs(), has_them)) return;
  *call.mutable_submitted_env() = call.specs(0).submitted_env();
  for (auto& spec : *call.mutable_specs()) spec.clear_submitted_env();
}

int submit_sweep(Session& session, const SubmitOptions& options, const Request& request) {
  auto call = call_of<muster::v1::SubmitSweepRequest>(request);
  share_submitted_env(call);
  call.set_request_id(fresh_request_id());
  if (call.ByteSizeLong() > kMostBytes) {
    throw Failure(kUsage,
                  "the sweep's jobs together are larger than 31 MiB; give it fewer values, or submit it in parts");
  }
  auto& client = session.client_to_be();
  muster::v1::SubmitSweepResponse response;
  submit_surely(
      client, [&](auto* context) { return client.jobs().SubmitSweep(context, call, &response); }, kSweepLimit);
  print_answer(options, response, response.sweep());
  const auto parallel = request.parallel > 0 ? ", " + std::to_string(request.parallel) + " at a time" : "";
  std::cerr << "muster: submitted sweep " << response.sweep() << ": " << submitted_jobs_text(response) << parallel
            << "; compare them with muster results --sweep " << response.sweep() << "\n";
  return options.wait ? wait_for_all(client, response) : kSuccess;
}

/// Says on stderr how Slurm gets the sweep, if that is not one array.
void tell_of_several(const Request& request, const muster::v1::PlanScriptResponse& plan) {
  const auto jobs = request.specs.size();
  if (plan.one_by_one() > 0) {
    std::cerr << "muster: " << (plan.one_by_one() < jobs ? std::to_string(plan.one_by_one()) + " of " : "")
              << "the sweep's " << jobs << " jobs go to Slurm one by one, since a limit concerns them ("
              << (request.parallel > 0 ? "parallel" : "max_running_jobs_per_user of their partition")
              << "); one script is printed for jobs that ask for the same\n";
  } else if (plan.scripts_size() > 1) {
    std::cerr << "muster: the sweep's " << jobs << " jobs become " << plan.scripts_size() << " Slurm jobs";
    const auto most = jobfile::slurm_whole(request.specs.front(), "array_parallelism");
    if (most > 0) std::cerr << "; slurm.array_parallelism = " << most << " counts in each array by itself";
    std::cerr << "\n";
  }
}

std::string verdict_of(const muster::v1::CheckScriptResponse& answer) {
  if (answer.expected_start().empty())
    return answer.said().empty() ? "Slurm would take it" : "Slurm would take it: " + answer.said();
  auto text = "would start at " + utc_text(answer.expected_start());
  if (!answer.nodes().empty()) text += " on " + answer.nodes();
  if (!answer.partition().empty()) text += " in partition " + answer.partition();
  return text;
}

int print_script(Session& session, const SubmitOptions& options, const Request& request) {
  const auto plan = session.client().call(&JobStub::PlanScript, script_call_of(request));
  tell_of_several(request, plan);
  if (options.json) {
    print_json(json_of(plan));
  } else {
    for (const auto& script : plan.scripts()) std::cout << script;
  }
  return kSuccess;
}

int check_script(Session& session, const SubmitOptions& options, const Request& request) {
  // sbatch --test-only may take long.
  const auto answer = session.client().call(&JobStub::CheckScript, script_call_of(request), std::chrono::seconds(40));
  if (options.json) print_json(json_of(answer));
  if (!answer.refusal().empty()) throw Failure(kRefused, "Slurm would refuse it: " + answer.refusal());
  if (!options.json) std::cout << verdict_of(answer) << "\n";
  return kSuccess;
}

/// Runs the job with executor = "debug". It must be one job that starts at once.
int debug(const SubmitOptions& options, const Request& request) {
  const std::string remedy = "; leave it out, or use another executor";
  if (request.is_sweep) throw Failure(kUsage, "executor \"debug\" runs one job, not a sweep" + remedy);
  for (const auto& [given, option] :
       {std::pair(options.print_script, "--print-script"), {options.check, "--check"}, {options.json, "--json"}}) {
    if (given)
      throw Failure(kUsage, "executor \"debug\" runs the job here, so it takes no " + std::string(option) + remedy);
  }
  return run_in_foreground(request.specs.front());
}

/// Ranks of a job that was forced do not refuse either.
void force(Request& request) {
  for (auto& spec : request.specs)
    if (spec.has_recipe()) (*spec.mutable_recipe()->mutable_values())["fsdp.check_memory"].set_flag(false);
}

int run_submit(Session& session, const SubmitOptions& options) {
  auto request = read_request(session, options);
  if (!request) return kUsage;
  if (options.force) force(*request);
  if (request->is_sweep && options.follow) {
    throw Failure(kUsage, "--follow shows one job, and this is a sweep of " + std::to_string(request->specs.size()) +
                              "; use --wait, or muster list -w --sweep and the sweep's name");
  }
  tell_notes(*request);
  if (request->specs.front().executor() == "debug") return debug(options, *request);
  if (options.print_script) return print_script(session, options, *request);
  if (options.check) return check_script(session, options, *request);
  refuse_misfits(*request, is_loopback(session.config().address.value));
  if (request->is_sweep) return submit_sweep(session, options, *request);
  return submit_job(session, options, *request);
}

}  // namespace

void ask_again(Client& client, const grpc::Status& status, Tries& tries) {
  const auto failure = client.failure(status);
  const bool overloaded = is_overloaded(status), unchanged = is_unchanged(status);
  if (!unchanged && !is_lost_contact(status)) throw failure;
  if (!unchanged && !overloaded) tries.maybe_accepted = true;
  if (Contact::Clock::now() >= tries.deadline) {
    throw Failure(
        failure.exit(),
        failure.what() + std::string(tries.maybe_accepted
                                         ? ". It is not known whether the submission was accepted: see muster list"
                                         : ". The submission was not accepted"));
  }
  if (!tries.told) {
    std::cerr << "muster: "
              << (unchanged    ? status.error_message()
                  : overloaded ? "the controller has too many calls at the same time"
                               : "the answer to the submission was lost")
              << "; trying again\n";
  }
  tries.told = true;
  Interrupts::instance().sleep(kPause);
  client.connect();
}

void define_submit(CLI::App& app, Session& session) {
  auto options = add_action<SubmitOptions>(app, session, run_submit);
  app.footer([prose = app.get_footer()] {
    return prose + "\n\nKeys of a job file, with their defaults. Relative paths start at the file's folder.\n\n" +
           key_help(columns());
  });
  app.footer("");
  const auto add_texts = [&](const char* name, std::vector<std::string>& texts, const char* type, const char* meaning) {
    app.add_option(name, texts, meaning)->type_name(type)->allow_extra_args(false);
  };
  app.add_option("file", options->file, "The job file, in TOML, or a script for sbatch; - reads it from standard input")
      ->type_name("JOB.toml");
  app.add_option("words", options->words, "Arguments of a script for sbatch: its $1 and those after it")
      ->type_name("ARGUMENT");
  app.add_option("--like", options->like, "Take the settings and the environment of this job, not a job file")
      ->check(whole_number(1, INT64_MAX))
      ->type_name("JOB");
  add_texts("--set", options->set, "KEY=VALUE", "Use this value, not the job file's; may be repeated");
  add_texts("--env", options->env, "NAME[=VALUE]",
            "Set this variable for the ranks, as in [env]; without a value, take it from this shell; may be repeated");
  app.add_option("--name", options->name, "Name of the job, in place of the job file's")->type_name("NAME");
  app.add_option("--executor", options->executor, "What starts the ranks, in place of the job file's")
      ->check(CLI::IsMember({"auto", "slurm", "local", "debug"}));
  app.add_option("--partition", options->partition, "slurm.partition, in place of the job file's")->type_name("NAME");
  app.add_option("--nodes", options->nodes, "resources.nodes, in place of the job file's")->type_name("N");
  app.add_option("--ranks", options->ranks,
                 "Ranks of the whole job, the same number on each node, as --ntasks of sbatch")
      ->type_name("N");
  app.add_option("--gpus", options->gpus, "GPUs of the whole job, which its ranks share out evenly, as for sbatch")
      ->type_name("N");
  app.add_option("--time", options->time, "resources.time_limit: 12h, or as for sbatch 30 (minutes), 2-00:00:00")
      ->type_name("TIME");
  add_texts("--after", options->after, "JOB",
            "Start after this job succeeded; failed:JOB, ended:JOB: after it failed, ended; may be repeated");
  app.add_flag("--hold", options->hold, "Submit the job held: it starts after muster release");
  app.add_flag("--force", options->force, "Submit a job that does not fit into memory by its plan; see muster plan");
  add_texts("--sweep", options->sweep, "KEY=VALUES",
            "Submit a job for each value, such as train.seed=0..3; if repeated, for each combination");
  add_number(app, "--parallel", options->parallel, 1, static_cast<std::int64_t>(jobfile::kMostSweepJobs),
             "Let at most N jobs of a sweep run at once");
  app.add_option("--sweep-settings", options->sweep_settings,
                 "Show these settings of the jobs of a sweep, in place of the keys that vary: a JSON array with an "
                 "object for each job. For programs that make sweeps")
      ->type_name("FILE");
  auto* script =
      app.add_flag("--print-script", options->print_script, "Submit nothing, and print the script for sbatch");
  auto* check =
      app.add_flag("--check", options->check, "Submit nothing, and ask Slurm whether and when the job would start");
  auto* wait = app.add_flag("--wait", options->wait, "Return when the job has ended, with its result");
  auto* follow = app.add_flag("--follow", options->follow, "As --wait, and show progress or output on stderr");
  check->excludes(script);
  wait->excludes(script)->excludes(check);
  follow->excludes(wait)->excludes(script)->excludes(check);
  app.add_flag("--json", options->json, "Print the controller's whole answer as an object, not only the id");
}

}  // namespace cli
