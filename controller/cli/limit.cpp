#include <iostream>

#include "cli/command.h"
#include "cli/json_view.h"
#include "spec/fields.h"

namespace cli {
namespace {

struct LimitOptions {
  std::int64_t job = 0;
  std::string time;
  bool json = false;
};

std::int64_t limit_of(const std::string& text) {
  if (text == "none") return 0;
  const auto& field = *spec::find_field("resources.time_limit");
  const auto value = spec::parse(field, text);
  if (!value || !spec::allowed(field, *value)) {
    throw Failure(kUsage, "time limit \"" + text + "\": want " + spec::wanted(field) + ", or none");
  }
  return std::get<std::int64_t>(*value);
}

int run_limit(Session& session, const LimitOptions& options) {
  muster::v1::SetTimeLimitRequest request;
  request.set_job_id(options.job);
  request.set_user(user_name());
  request.set_time_limit_ms(limit_of(options.time));
  auto& client = session.client();
  const auto job = client.call(client.jobs(), &muster::v1::JobService::Stub::SetTimeLimit, request);
  if (options.json) {
    print_json(json_of(job));
    return kSuccess;
  }
  std::cout << "job " << job.id() << ": "
            << (job.time_limit_ms() == 0
                    ? std::string("no time limit")
                    : "time limit " + spec::print(*spec::find_field("resources.time_limit"), job.time_limit_ms()))
            << "\n";
  return kSuccess;
}

}  // namespace

void define_limit(CLI::App& app, Session& session) {
  auto options = add_action<LimitOptions>(app, session, run_limit);
  add_job(app, options->job);
  app.add_option("time", options->time, "How long each attempt may run, such as 4h or 1h30m; or none")
      ->required()
      ->type_name("TIME");
  app.add_flag("--json", options->json, "The job afterwards");
}

}  // namespace cli
