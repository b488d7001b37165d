#include <iostream>

#include "cli/json_view.h"
#include "cli/submit_options.h"
#include "cli/text.h"

namespace cli {
namespace {

using Stub = muster::v1::JobService::Stub;

muster::v1::PlanScriptRequest call_of(const Request& request) {
  muster::v1::PlanScriptRequest call;
  for (const auto& spec : request.specs) *call.add_specs() = spec;
  call.set_user(user_name());
  call.set_parallel(request.parallel);
  call.set_is_sweep(request.is_sweep);
  return call;
}

/// Said beside several scripts: what a sweep becomes.
void tell_of_several(const Request& request, int scripts) {
  std::cerr << "muster: the sweep's " << request.specs.size() << " jobs become " << scripts << " jobs of Slurm's";
  if (request.parallel > 0) std::cerr << ", each with a dependency (afterany) on the one before";
  std::cerr << "\n";
}

std::string verdict_of(const muster::v1::CheckScriptResponse& answer) {
  if (answer.expected_start().empty())
    return answer.said().empty() ? "Slurm takes it" : "Slurm takes it: " + answer.said();
  auto text = "would start at " + utc_text(answer.expected_start());
  if (!answer.nodes().empty()) text += " on " + answer.nodes();
  if (!answer.partition().empty()) text += " in partition " + answer.partition();
  return text;
}

}  // namespace

int print_script(Session& session, const SubmitOptions& options, const Request& request) {
  const auto call = call_of(request);
  auto& client = session.client();
  const auto plan = client.call(client.jobs(), &Stub::PlanScript, call);
  if (plan.scripts_size() > 1) tell_of_several(request, plan.scripts_size());
  if (options.json) {
    print_json(json_of(plan));
  } else {
    for (const auto& script : plan.scripts()) std::cout << script;
  }
  return kSuccess;
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
