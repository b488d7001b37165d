#include <chrono>
#include <iostream>

#include "cli/command.h"
#include "cli/follow.h"

namespace cli {
namespace {

/// A transaction may change ten thousand jobs.
constexpr std::chrono::seconds kSweepLimit{60};

struct ControlOptions {
  std::vector<std::int64_t> jobs;
  std::string sweep;
  bool json = false;
  std::string command;
};

void tell(const muster::v1::Job& job) {
  std::cout << "job " << job.id() << " " << outcome_text(job) << "\n";
}

/// Changes all jobs of the sweep that allow it, in one call. The others are counted.
int ask_sweep(Session& session, const ControlOptions& options, muster::v1::SweepChange change) {
  muster::v1::ChangeSweepRequest request;
  request.set_sweep(options.sweep);
  request.set_user(user_name());
  request.set_change(change);
  const auto response = session.client().call(&JobStub::ChangeSweep, request, kSweepLimit);
  if (options.json) {
    print_json_array(response.jobs());
  } else {
    for (const auto& job : response.jobs()) tell(job);
  }
  if (response.refused() > 0) {
    std::cerr << "muster: " << response.jobs_size() << " of "
              << static_cast<std::size_t>(response.jobs_size()) + response.refused()
              << " jobs; the states of the others do not allow it, such as: " << response.refusal() << "\n";
  }
  return kSuccess;
}

template <typename Request, auto method, muster::v1::SweepChange change>
int run(Session& session, const ControlOptions& options) {
  if (options.jobs.empty() == options.sweep.empty()) {
    throw Failure(kUsage, options.jobs.empty() ? "want JOB..., or --sweep" : "want JOB... or --sweep, not both");
  }
  if (!options.sweep.empty()) return ask_sweep(session, options, change);
  auto& client = session.client();
  const auto ask = [&](std::int64_t id) {
    Request request;
    request.set_job_id(id);
    request.set_user(user_name());
    return client.call(method, request);
  };
  return ask_each(options.command, options.jobs, options.json, ask, tell);
}

void define(CLI::App& app, Session& session, int (*run)(Session&, const ControlOptions&)) {
  auto options = add_action<ControlOptions>(app, session, run);
  options->command = app.get_name();
  add_jobs(app, options->jobs);
  app.add_option("--sweep", options->sweep, "All jobs of this sweep whose state allows it")->type_name("SWEEP");
  app.add_flag("--json", options->json,
               "The changed job; for several jobs or a sweep, an array (for a sweep with state and reason only)");
}

}  // namespace

void define_cancel(CLI::App& app, Session& session) {
  define(app, session, run<muster::v1::CancelRequest, &JobStub::Cancel, muster::v1::SWEEP_CHANGE_CANCEL>);
}
void define_requeue(CLI::App& app, Session& session) {
  define(app, session, run<muster::v1::RequeueRequest, &JobStub::Requeue, muster::v1::SWEEP_CHANGE_REQUEUE>);
}
void define_hold(CLI::App& app, Session& session) {
  define(app, session, run<muster::v1::HoldRequest, &JobStub::Hold, muster::v1::SWEEP_CHANGE_HOLD>);
}
void define_release(CLI::App& app, Session& session) {
  define(app, session, run<muster::v1::HoldRequest, &JobStub::Release, muster::v1::SWEEP_CHANGE_RELEASE>);
}

}  // namespace cli
