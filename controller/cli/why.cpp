#include <iostream>

#include "cli/command.h"
#include "cli/terminal.h"
#include "cli/text.h"

namespace cli {
namespace {

std::string expected_text(const std::string& at) {
  const auto start = time_ms(at);
  if (start < 0) return "";
  using namespace std::chrono;
  const auto left = start - duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  return utc_text(at) + (left > 0 ? ", in " + duration_text(left) : "");
}

void print_why(const muster::v1::WhyResponse& why) {
  const auto& status = why.status().empty() ? why.state() : why.status();
  std::cout << "job " << why.job_id() << "  " << painted(status, colour_of_state(status)) << "\n";
  print_entry("why", why.reason());
  print_entry("do", why.action());
  print_entry("Slurm says", why.scheduler_reason());
  print_entry("starts", expected_text(why.expected_start()));
  for (const auto& note : why.notes()) print_entry("note", note);
}

int run_why(Session& session, const JobsOptions& options) {
  auto& client = session.client();
  const auto print = [lead = ""](const muster::v1::WhyResponse& why) mutable {
    std::cout << std::exchange(lead, "\n");
    print_why(why);
  };
  return ask_each(
      "why", options.jobs, options.json, [&](std::int64_t id) { return client.call(&JobStub::Why, of_job(id)); },
      print);
}

}  // namespace

void define_why(CLI::App& app, Session& session) {
  auto options = add_action<JobsOptions>(app, session, run_why);
  add_jobs(app, options->jobs)->required();
  app.add_flag("--json", options->json,
               "{api_version, job_id, state, reason, action, scheduler_reason, expected_start, status, notes}; several "
               "as an array");
}

}  // namespace cli
