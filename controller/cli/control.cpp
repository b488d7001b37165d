#include <chrono>
#include <iostream>

#include "cli/command.h"
#include "cli/follow.h"
#include "cli/json_view.h"
#include "cli/usage.h"

namespace cli {
namespace {

using Stub = muster::v1::JobService::Stub;

/// A transaction may change ten thousand jobs.
constexpr std::chrono::seconds kSweepLimit{60};

struct ControlOptions {
  std::vector<std::int64_t> jobs;
  std::string sweep;
  bool json = false;
  std::string command;
};

template <typename Request>
using Method = grpc::Status (Stub::*)(grpc::ClientContext*, const Request&, muster::v1::Job*);

/// Calls a method for one job after the other.
template <typename Request>
class Asking {
 public:
  Asking(Client& client, Method<Request> method) : client_(client), method_(method) {}

  /// Returns false if the job's state refuses the request; `why` then has the reason. Throws other failures.
  bool ask(std::int64_t id, muster::v1::Job* job, std::string* why) {
    Request request;
    request.set_job_id(id);
    request.set_user(user_name());
    const auto status = client_.try_call(client_.jobs(), method_, request, job);
    if (status.ok()) return true;
    if (status.error_code() != grpc::StatusCode::FAILED_PRECONDITION) throw client_.failure(status);
    *why = client_.failure(status).what();
    return false;
  }

 private:
  Client& client_;
  Method<Request> method_;
};

void tell(const muster::v1::Job& job) {
  std::cout << "job " << job.id() << " " << outcome_text(job) << "\n";
}

/// Handles each job separately: a refusal does not stop the others. Returns the exit code of the first problem.
template <typename Request>
int ask_jobs(Session& session, const ControlOptions& options, Method<Request> method) {
  auto& client = session.client();
  Asking<Request> asking(client, method);
  JsonRows rows(false);
  int exit = kSuccess;
  const auto trouble = [&](int code, const std::string& text) {
    std::cerr << "muster " << options.command << ": " << text << "\n";
    if (exit == kSuccess) exit = code;
  };
  const bool lone = options.jobs.size() == 1;
  for (const auto id : options.jobs) {
    muster::v1::Job job;
    std::string why;
    try {
      if (!asking.ask(id, &job, &why)) {
        trouble(kUsage, why);
      } else if (!options.json) {
        tell(job);
      } else if (lone) {
        print_json(json_of(job));
      } else {
        rows.add(json_of(job));
      }
    } catch (const Failure& failure) {
      if (failure.exit() == kUnreachable) {
        if (options.json && !lone) rows.end();
        throw;
      }
      trouble(failure.exit(), failure.what());
    }
  }
  if (options.json && !lone) rows.end();
  return exit;
}

/// Changes all jobs of the sweep that allow it, in one call. The others are counted.
int ask_sweep(Session& session, const ControlOptions& options, muster::v1::SweepChange change) {
  muster::v1::ChangeSweepRequest request;
  request.set_sweep(options.sweep);
  request.set_user(user_name());
  request.set_change(change);
  muster::v1::ChangeSweepResponse response;
  auto& client = session.client();
  const auto status = client.try_call(client.jobs(), &Stub::ChangeSweep, request, &response, kSweepLimit);
  if (!status.ok()) throw client.failure(status);
  JsonRows rows(false);
  for (const auto& job : response.jobs()) {
    if (options.json) {
      rows.add(json_of(job));
    } else {
      tell(job);
    }
  }
  if (options.json) rows.end();
  if (response.refused() > 0) {
    std::cerr << "muster: " << response.jobs_size() << " of "
              << static_cast<std::size_t>(response.jobs_size()) + response.refused()
              << " jobs; the states of the others do not allow it, such as: " << response.refusal() << "\n";
  }
  return kSuccess;
}

template <typename Request>
int run(Session& session, const ControlOptions& options, Method<Request> method, muster::v1::SweepChange change) {
  if (options.jobs.empty() == options.sweep.empty()) {
    throw Failure(kUsage, options.jobs.empty() ? "want JOB..., or --sweep" : "want JOB... or --sweep, not both");
  }
  return options.sweep.empty() ? ask_jobs(session, options, method) : ask_sweep(session, options, change);
}

int run_cancel(Session& session, const ControlOptions& options) {
  return run<muster::v1::CancelRequest>(session, options, &Stub::Cancel, muster::v1::SWEEP_CHANGE_CANCEL);
}
int run_requeue(Session& session, const ControlOptions& options) {
  return run<muster::v1::RequeueRequest>(session, options, &Stub::Requeue, muster::v1::SWEEP_CHANGE_REQUEUE);
}
int run_hold(Session& session, const ControlOptions& options) {
  return run<muster::v1::HoldRequest>(session, options, &Stub::Hold, muster::v1::SWEEP_CHANGE_HOLD);
}
int run_release(Session& session, const ControlOptions& options) {
  return run<muster::v1::HoldRequest>(session, options, &Stub::Release, muster::v1::SWEEP_CHANGE_RELEASE);
}

void define(CLI::App& app, Session& session, int (*run)(Session&, const ControlOptions&)) {
  auto options = add_action<ControlOptions>(app, session, run);
  options->command = app.get_name();
  app.add_option("jobs", options->jobs, "The jobs' numbers, as muster list shows them")
      ->check(whole_number(1, INT64_MAX))
      ->type_name("JOB");
  app.add_option("--sweep", options->sweep, "All jobs of this sweep whose state allows it")->type_name("SWEEP");
  app.add_flag("--json", options->json,
               "The changed job; for several jobs or a sweep, an array (for a sweep with state and reason only)");
}

}  // namespace

void define_cancel(CLI::App& app, Session& session) {
  define(app, session, run_cancel);
}
void define_requeue(CLI::App& app, Session& session) {
  define(app, session, run_requeue);
}
void define_hold(CLI::App& app, Session& session) {
  define(app, session, run_hold);
}
void define_release(CLI::App& app, Session& session) {
  define(app, session, run_release);
}

}  // namespace cli
