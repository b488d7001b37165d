#include <iostream>

#include "cli/command.h"
#include "cli/entries.h"
#include "cli/json_view.h"
#include "cli/terminal.h"
#include "cli/text.h"

namespace cli {
namespace {

struct WhyOptions {
  std::int64_t job = 0;
  bool json = false;
};

std::string expected_text(const std::string& at) {
  const auto start = time_ms(at);
  if (start < 0) return "";
  using namespace std::chrono;
  const auto left = start - duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count();
  return utc_text(at) + (left > 0 ? ", in " + duration_text(left) : "");
}

int run_why(Session& session, const WhyOptions& options) {
  muster::v1::GetRequest request;
  request.set_job_id(options.job);
  auto& client = session.client();
  const auto why = client.call(client.jobs(), &muster::v1::JobService::Stub::Why, request);
  if (options.json) {
    print_json(json_of(why));
    return kSuccess;
  }
  const auto& status = why.status().empty() ? why.state() : why.status();
  std::cout << "job " << why.job_id() << "  " << painted(status, colour_of_state(status)) << "\n";
  print_entry("why", why.reason());
  print_entry("do", why.action());
  print_entry("Slurm says", why.scheduler_reason());
  print_entry("starts", expected_text(why.expected_start()));
  for (const auto& note : why.notes()) print_entry("note", note);
  return kSuccess;
}

}  // namespace

void define_why(CLI::App& app, Session& session) {
  auto options = add_action<WhyOptions>(app, session, run_why);
  add_job(app, options->job);
  app.add_flag("--json", options->json,
               "{api_version, job_id, state, reason, action, scheduler_reason, expected_start, status, notes}");
}

}  // namespace cli
