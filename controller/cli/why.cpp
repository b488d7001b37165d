#include <iostream>

#include "cli/command.h"
#include "cli/entries.h"
#include "cli/json_view.h"
#include "cli/terminal.h"
#include "cli/text.h"
#include "cli/usage.h"

namespace cli {
namespace {

struct WhyOptions {
  std::vector<std::int64_t> jobs;
  bool json = false;
};

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

/// As JSON, one job is an object and several are an array. A job that does not exist does not stop the others.
int run_why(Session& session, const WhyOptions& options) {
  auto& client = session.client();
  const bool lone = options.jobs.size() == 1;
  JsonRows rows(false);
  int exit = kSuccess;
  for (std::size_t i = 0; i < options.jobs.size(); ++i) {
    muster::v1::GetRequest request;
    request.set_job_id(options.jobs[i]);
    muster::v1::WhyResponse why;
    const auto status = client.try_call(client.jobs(), &muster::v1::JobService::Stub::Why, request, &why);
    if (status.error_code() == grpc::StatusCode::NOT_FOUND && !lone) {
      std::cerr << "muster why: " << client.failure(status).what() << "\n";
      exit = kNotFound;
    } else if (!status.ok()) {
      throw client.failure(status);
    } else if (options.json) {
      lone ? print_json(json_of(why)) : rows.add(json_of(why));
    } else {
      if (i > 0) std::cout << "\n";
      print_why(why);
    }
  }
  if (options.json && !lone) rows.end();
  return exit;
}

}  // namespace

void define_why(CLI::App& app, Session& session) {
  auto options = add_action<WhyOptions>(app, session, run_why);
  app.add_option("jobs", options->jobs, "The jobs' numbers, as muster list shows them")
      ->required()
      ->check(whole_number(1, INT64_MAX))
      ->type_name("JOB");
  app.add_flag("--json", options->json,
               "{api_version, job_id, state, reason, action, scheduler_reason, expected_start, status, notes}; several "
               "as an array");
}

}  // namespace cli
