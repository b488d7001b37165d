#include <iostream>

#include "cli/debug_run.h"
#include "cli/key_help.h"
#include "cli/log_view.h"
#include "cli/submission.h"
#include "cli/submit_options.h"
#include "cli/terminal.h"
#include "jobfile/idle_keys.h"

namespace cli {
namespace {

/// Shows the progress of a recipe, or the output of a command, until the job has ended. Returns the exit code.
int follow(Client& client, const muster::v1::JobSpec& spec, std::int64_t id) {
  Interrupts::instance().gently();
  auto end = StreamEnd::kComplete;
  if (spec.has_command()) {
    LogOptions logs;
    logs.job = id;
    logs.follow = true;
    end = print_logs(client, logs, std::cerr);
  }
  muster::v1::Job job;
  Progress progress;
  if (end == StreamEnd::kComplete) {
    end = wait_for_end(client, id, &job, std::nullopt, [&](const muster::v1::Job& now) {
      if (spec.has_recipe() && !is_ended(now)) progress.show(now);
    });
  }
  progress.close();
  return tell_end(client, end, id, job);
}

/// Names keys that have no effect in this job, and slurm.output if the job does not go to Slurm.
void tell_unheeded(const muster::v1::JobSpec& spec) {
  for (const auto& note : jobfile::idle_keys(spec, false)) std::cerr << "muster submit: note: " << note << "\n";
  const bool local = spec.executor() == "local" || spec.executor() == "debug";
  if (!local || spec.slurm().output().empty()) return;
  std::cerr << "muster submit: slurm.output has an effect on Slurm only; "
            << (spec.executor() == "local" ? "muster logs shows the output of local processes\n"
                                           : "a debug run writes to this terminal\n");
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
  auto& client = session.client_unconnected();
  const auto response = submit_surely(client, &JobStub::Submit, request);
  const auto id = response.job_id();
  if (options.json) {
    print_json(json_of(response));
  } else {
    std::cout << id << "\n";
  }
  std::cout << std::flush;
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

int run_submit(Session& session, const SubmitOptions& options) {
  const auto request = read_request(session, options);
  if (!request) return kUsage;
  if (request->is_sweep && options.follow) {
    throw Failure(kUsage, "--follow shows one job, and this is a sweep of " + std::to_string(request->specs.size()) +
                              "; use --wait, or muster list -w --sweep and the sweep's name");
  }
  tell_unheeded(request->specs.front());
  if (request->specs.front().executor() == "debug") return debug(options, *request);
  if (options.print_script) return print_script(session, options, *request);
  if (options.check) return check_script(session, options, *request);
  if (request->is_sweep) return submit_sweep(session, options, *request);
  return submit_job(session, options, *request);
}

}  // namespace

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
  app.add_option("file", options->file, "The job file, in TOML; - reads it from standard input")->type_name("JOB.toml");
  app.add_option("--like", options->like, "Take the settings and the environment of this job, not a job file")
      ->check(whole_number(1, INT64_MAX))
      ->type_name("JOB");
  add_texts("--set", options->set, "KEY=VALUE", "Use this value, not the job file's; may be repeated");
  add_texts("--env", options->env, "NAME[=VALUE]",
            "Set this variable for the ranks, as in [env]; without a value, take it from this shell; may be repeated");
  app.add_option("--name", options->name, "Name of the job, in place of the job file's")->type_name("NAME");
  app.add_option("--executor", options->executor, "What starts the ranks, in place of the job file's")
      ->check(CLI::IsMember({"auto", "slurm", "local", "debug"}));
  add_texts("--after", options->after, "JOB",
            "Start after this job succeeded; failed:JOB, ended:JOB: after it failed, ended; may be repeated");
  app.add_flag("--hold", options->hold, "Submit the job held: it starts after muster release");
  add_texts("--sweep", options->sweep, "KEY=VALUES",
            "Submit a job for each value, such as train.seed=0..3; if repeated, for each combination");
  add_number(app, "--parallel", options->parallel, 1, static_cast<std::int64_t>(jobfile::kMostSweepJobs),
             "Let at most N jobs of a sweep run at once");
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
