#include "cli/command.h"
#include "cli/follow.h"

namespace cli {
namespace {

struct WaitOptions {
  std::int64_t job = 0;
  std::string timeout;
  bool json = false;
};

int run_wait(Session& session, const WaitOptions& options) {
  std::optional<Contact::Clock::time_point> deadline;
  if (!options.timeout.empty()) {
    deadline = Contact::Clock::now() + duration_of("--timeout", options.timeout, "90s or 12h");
  }
  auto& client = session.client();
  muster::v1::Job job;
  const auto end = wait_for_end(client, options.job, &job, deadline);
  if (options.json && job.id() != 0) print_json(json_of(job));
  return tell_end(client, end, options.job, job);
}

}  // namespace

void define_wait(CLI::App& app, Session& session) {
  auto options = add_action<WaitOptions>(app, session, run_wait);
  add_job(app, options->job);
  app.add_option("--timeout", options->timeout, "Give up after this time, such as 90s or 12h, with exit code 124")
      ->type_name("TIME");
  app.add_flag("--json", options->json, "The job at the end");
}

}  // namespace cli
