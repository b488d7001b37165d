#include <iostream>

#include "cli/command.h"
#include "cli/log_view.h"
#include "cli/usage.h"

namespace cli {
namespace {

int run_logs(Session& session, const LogOptions& options) {
  return print_logs(session.client(), options, std::cout) == StreamEnd::kInterrupted ? kInterrupted : kSuccess;
}

}  // namespace

void define_logs(CLI::App& app, Session& session) {
  auto options = add_action<LogOptions>(app, session, run_logs);
  options->tell_empty = true;
  add_job(app, options->job);
  auto* follow =
      app.add_flag("-f,--follow", options->follow, "Go on with new lines and later attempts until the job ends");
  auto* rank =
      app.add_option("--rank", options->rank, "Only this rank")->check(whole_number(0, UINT32_MAX - 1))->type_name("N");
  app.add_flag("--slurm", options->slurm, "The output of Slurm, setup lines and health check, not of the ranks")
      ->excludes(rank);
  app.add_option("--attempt", options->attempt, "This attempt, not the newest")
      ->check(whole_number(1, UINT32_MAX))
      ->type_name("N");
  app.add_option("-n,--tail", options->tail, "Only the last N lines of each rank")
      ->check(whole_number(1, UINT32_MAX))
      ->type_name("N");
  app.add_flag("--timestamps", options->timestamps,
               "With -f: before each line the time (UTC) at which the controller saw it")
      ->needs(follow);
  app.add_flag("--json", options->json, "An array of objects {attempt, rank, text}; with -f one object a line");
}

}  // namespace cli
