#include <chrono>
#include <iostream>
#include <thread>

#include "cli/command.h"
#include "jobfile/job_keys.h"

namespace cli {
namespace {

/// A call of scontrol may take 15 s.
constexpr std::chrono::seconds kPatience{20};
constexpr std::chrono::milliseconds kInterval{50};

struct LimitOptions {
  std::int64_t job = 0;
  std::string time;
  bool json = false;
};

std::int64_t limit_of(const std::string& text) {
  if (text == "none") return 0;
  const auto& field = *jobfile::find_key("resources.time_limit");
  const auto value = schema::parse(field, text);
  if (!value || !schema::allowed(field, *value)) {
    throw Failure(kUsage, "time limit \"" + text + "\": want " + schema::wanted(field) + ", or none");
  }
  return std::get<std::int64_t>(*value);
}

std::string limit_text(std::int64_t limit_ms) {
  if (limit_ms == 0) return "no time limit";
  return "time limit " + schema::print(*jobfile::find_key("resources.time_limit"), limit_ms);
}

/// Waits for the scheduler's answer, at most kPatience. Returns the newest job.
muster::v1::Job until_answered(Client& client, muster::v1::Job job) {
  const auto end = std::chrono::steady_clock::now() + kPatience;
  while (job.has_time_limit_asked_ms() && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(kInterval);
    job = client.call(&JobStub::Get, of_job(job.id()));
  }
  return job;
}

int run_limit(Session& session, const LimitOptions& options) {
  muster::v1::SetTimeLimitRequest request;
  request.set_job_id(options.job);
  request.set_user(user_name());
  request.set_time_limit_ms(limit_of(options.time));
  auto& client = session.client();
  const auto job = until_answered(client, client.call(&JobStub::SetTimeLimit, request));
  if (options.json) {
    print_json(json_of(job));
    return job.time_limit_problem().empty() ? kSuccess : kRefused;
  }
  const auto name = "job " + std::to_string(job.id()) + ": ";
  if (!job.time_limit_problem().empty()) {
    throw Failure(kRefused, name + job.time_limit_problem() +
                                "; Slurm lets only its operators give a running job more time: ask one, or set the "
                                "limit while no attempt runs");
  }
  std::cout << name << limit_text(job.time_limit_ms());
  if (job.has_time_limit_asked_ms()) {
    std::cout << "; " << limit_text(job.time_limit_asked_ms()) << " was asked for; Slurm has not answered yet";
  }
  std::cout << "\n";
  return kSuccess;
}

}  // namespace

void define_limit(CLI::App& app, Session& session) {
  auto options = add_action<LimitOptions>(app, session, run_limit);
  add_job(app, options->job);
  app.add_option("time", options->time, "How long each attempt may run, such as 4h or 1h30m; or none")
      ->required()
      ->type_name("TIME");
  app.add_flag("--json", options->json, "The changed job");
}

}  // namespace cli
