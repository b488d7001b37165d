#include <iostream>

#include "cli/command.h"
#include "cli/follow.h"
#include "cli/json_view.h"

namespace cli {
namespace {

using Stub = muster::v1::JobService::Stub;

struct ControlOptions {
  std::int64_t job = 0;
  bool json = false;
};

int tell(const muster::v1::Job& job, bool json) {
  if (json) {
    print_json(json_of(job));
  } else {
    std::cout << "job " << job.id() << " " << outcome_text(job) << "\n";
  }
  return kSuccess;
}

template <typename Request>
Request request_of(const ControlOptions& options) {
  Request request;
  request.set_job_id(options.job);
  request.set_user(user_name());
  return request;
}

int run_cancel(Session& session, const ControlOptions& options) {
  auto& client = session.client();
  return tell(client.call(client.jobs(), &Stub::Cancel, request_of<muster::v1::CancelRequest>(options)), options.json);
}

int run_requeue(Session& session, const ControlOptions& options) {
  auto& client = session.client();
  return tell(client.call(client.jobs(), &Stub::Requeue, request_of<muster::v1::RequeueRequest>(options)),
              options.json);
}

void define(CLI::App& app, Session& session, int (*run)(Session&, const ControlOptions&)) {
  auto options = add_action<ControlOptions>(app, session, run);
  add_job(app, options->job);
  app.add_flag("--json", options->json, "The job afterwards");
}

}  // namespace

void define_cancel(CLI::App& app, Session& session) {
  define(app, session, run_cancel);
}
void define_requeue(CLI::App& app, Session& session) {
  define(app, session, run_requeue);
}

}  // namespace cli
