#include <iostream>

#include "cli/json_view.h"
#include "cli/submit_options.h"
#include "cli/text.h"

namespace cli {
namespace {

using Stub = muster::v1::JobService::Stub;

muster::v1::PlanScriptRequest call_of(const Request& request) {
  if (request.is_sweep) {
    std::cerr << "muster: of the sweep's " << request.specs.size() << " jobs, the first: " << request.specs[0].name()
              << "\n";
  }
  muster::v1::PlanScriptRequest call;
  *call.mutable_spec() = request.specs.front();
  call.set_user(user_name());
  return call;
}

std::string verdict_of(const muster::v1::CheckScriptResponse& answer) {
  if (answer.expected_start().empty())
    return answer.said().empty() ? "Slurm takes it" : "Slurm takes it: " + answer.said();
  auto text = "would start at " + time_text(answer.expected_start()) + " UTC";
  if (!answer.nodes().empty()) text += " on " + answer.nodes();
  if (!answer.partition().empty()) text += " in partition " + answer.partition();
  return text;
}

}  // namespace

int print_script(Session& session, const SubmitOptions& options, const Request& request) {
  const auto call = call_of(request);
  auto& client = session.client();
  const auto plan = client.call(client.jobs(), &Stub::PlanScript, call);
  if (options.json) {
    print_json(json_of(plan));
  } else {
    std::cout << plan.script();
  }
  if (plan.problem().empty()) return kSuccess;
  throw Failure(kUsage, "there is no script for it: " + plan.problem());
}

int check_script(Session& session, const SubmitOptions& options, const Request& request) {
  const auto call = call_of(request);
  auto& client = session.client();
  muster::v1::CheckScriptResponse answer;
  // Slurm may take its time.
  const auto status = client.try_call(client.jobs(), &Stub::CheckScript, call, &answer, std::chrono::seconds(40));
  if (!status.ok()) throw client.failure(status);
  if (options.json) print_json(json_of(answer));
  if (!answer.refusal().empty()) throw Failure(kRefused, "Slurm would refuse it: " + answer.refusal());
  if (!options.json) std::cout << verdict_of(answer) << "\n";
  return kSuccess;
}

}  // namespace cli
