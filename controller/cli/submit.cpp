#include <iostream>
#include <random>

#include "cli/command.h"
#include "cli/follow.h"
#include "cli/json_view.h"
#include "cli/log_view.h"
#include "spec/job_file.h"

namespace cli {
namespace {

// A controller may take this long to restart before a submission gives up.
constexpr std::chrono::seconds kPatience{20};

struct SubmitOptions {
  std::string file;
  std::vector<std::string> set;
  std::string name;
  bool wait = false;
  bool follow = false;
  bool json = false;
};

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

/// nullopt: refused, and every problem told, each with its own place first so that editors can jump there.
std::optional<muster::v1::JobSpec> read_spec(Session& session, const SubmitOptions& options) {
  std::vector<spec::Override> overrides;
  for (const auto& assignment : options.set) overrides.push_back(spec::override_of_set(assignment));
  if (!options.name.empty()) overrides.push_back({"--name " + options.name, "name", options.name});
  const auto checks = is_loopback(session.config().address.value) ? spec::FileChecks::kLook : spec::FileChecks::kSkip;
  auto file = spec::read_job_file(options.file, overrides, checks);
  if (file.problems.empty()) return std::move(file.spec);
  for (const auto& problem : file.problems) std::cerr << problem << "\n";
  std::cerr << "muster: nothing was submitted; muster submit --help explains every key\n";
  return std::nullopt;
}

/// Asks until there is an answer: the request id makes sure that a lost answer does not become a second job.
muster::v1::SubmitResponse submit(Client& client, const muster::v1::SubmitRequest& request) {
  const auto deadline = Contact::Clock::now() + kPatience;
  connect_patiently(client, kPatience);
  for (bool told = false;;) {
    muster::v1::SubmitResponse response;
    const auto status = client.try_call(client.jobs(), &muster::v1::JobService::Stub::Submit, request, &response);
    if (status.ok()) return response;
    if (!is_lost_contact(status)) throw client.failure(status);
    if (Contact::Clock::now() >= deadline) {
      throw Failure(kUnreachable, std::string(client.failure(status).what()) +
                                      ". Whether the job was accepted is not known: see muster list");
    }
    if (!told) std::cerr << "muster: the answer to the submission was lost; asking again\n";
    told = true;
    Interrupts::instance().sleep(std::chrono::milliseconds(250));
    client.connect();
  }
}

/// A recipe tells its progress itself; of any other program the output is shown.
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
    end = wait_for_end(
        client, id, std::nullopt,
        [&](const muster::v1::Job& now) {
          if (spec.has_recipe() && !is_ended(now)) progress.show(now);
        },
        &job);
  }
  progress.close();
  return tell_end(end, id, job);
}

int run_submit(Session& session, const SubmitOptions& options) {
  muster::v1::SubmitRequest request;
  auto spec = read_spec(session, options);
  if (!spec) return kUsage;
  *request.mutable_spec() = std::move(*spec);
  request.set_request_id(fresh_request_id());
  request.set_user(user_name());
  auto& client = session.client_unconnected();
  const auto response = submit(client, request);
  const auto id = response.job_id();
  if (options.json) {
    print_json(json_of(response));
  } else {
    std::cout << id << "\n";
  }
  std::cout << std::flush;
  if (options.follow) return follow(client, request.spec(), id);
  if (options.wait) {
    muster::v1::Job job;
    const auto end = wait_for_end(
        client, id, std::nullopt, [](const auto&) {}, &job);
    return tell_end(end, id, job);
  }
  std::cerr << "muster: submitted " << request.spec().name() << " as job " << id << "; follow it with muster logs "
            << id << " -f\n";
  return kSuccess;
}

}  // namespace

void define_submit(CLI::App& app, Session& session) {
  auto options = add_action<SubmitOptions>(app, session, run_submit);
  app.add_option("file", options->file, "The job file, in TOML")->required()->type_name("JOB.toml");
  app.add_option("--set", options->set, "Use this value rather than the job file's; may be repeated")
      ->type_name("KEY=VALUE")
      ->allow_extra_args(false);
  app.add_option("--name", options->name, "Name of the job, rather than the job file's")->type_name("NAME");
  auto* wait = app.add_flag("--wait", options->wait, "Return when the job has ended, with its result");
  app.add_flag("--follow", options->follow, "The same, showing progress or output on stderr")->excludes(wait);
  app.add_flag("--json", options->json, "Print {api_version, job_id, already_submitted} rather than the id alone");
}

}  // namespace cli
