#include <iostream>

#include "cli/submit_options.h"
#include "cli/text.h"

namespace cli {
namespace {

muster::v1::PlanScriptRequest call_of(const Request& request) {
  muster::v1::PlanScriptRequest call;
  for (const auto& spec : request.specs) *call.add_specs() = spec;
  call.set_user(user_name());
  call.set_parallel(request.parallel);
  call.set_is_sweep(request.is_sweep);
  return call;
}

/// Says on stderr how Slurm gets the sweep, if that is not one array.
void tell_of_several(const Request& request, const muster::v1::PlanScriptResponse& plan) {
  const auto jobs = request.specs.size();
  if (plan.one_by_one() > 0) {
    std::cerr << "muster: " << (plan.one_by_one() < jobs ? std::to_string(plan.one_by_one()) + " of " : "")
              << "the sweep's " << jobs << " jobs go to Slurm one by one, since a limit concerns them ("
              << (request.parallel > 0 ? "parallel" : "max_running_jobs_per_user of their partition")
              << "); one script is printed for jobs that ask for the same\n";
  } else if (plan.scripts_size() > 1) {
    std::cerr << "muster: the sweep's " << jobs << " jobs become " << plan.scripts_size() << " Slurm jobs";
    const auto most = request.specs.front().slurm().array_parallelism();
    if (most > 0) std::cerr << "; slurm.array_parallelism = " << most << " counts in each array by itself";
    std::cerr << "\n";
  }
}

std::string verdict_of(const muster::v1::CheckScriptResponse& answer) {
  if (answer.expected_start().empty())
    return answer.said().empty() ? "Slurm would take it" : "Slurm would take it: " + answer.said();
  auto text = "would start at " + utc_text(answer.expected_start());
  if (!answer.nodes().empty()) text += " on " + answer.nodes();
  if (!answer.partition().empty()) text += " in partition " + answer.partition();
  return text;
}

}  // namespace

int print_script(Session& session, const SubmitOptions& options, const Request& request) {
  const auto call = call_of(request);
  const auto plan = session.client().call(&JobStub::PlanScript, call);
  tell_of_several(request, plan);
  if (options.json) {
    print_json(json_of(plan));
  } else {
    for (const auto& script : plan.scripts()) std::cout << script;
  }
  return kSuccess;
}

int check_script(Session& session, const SubmitOptions& options, const Request& request) {
  // sbatch --test-only may take long.
  const auto answer = session.client().call(&JobStub::CheckScript, call_of(request), std::chrono::seconds(40));
  if (options.json) print_json(json_of(answer));
  if (!answer.refusal().empty()) throw Failure(kRefused, "Slurm would refuse it: " + answer.refusal());
  if (!options.json) std::cout << verdict_of(answer) << "\n";
  return kSuccess;
}

}  // namespace cli
