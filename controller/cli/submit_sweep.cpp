#include <algorithm>
#include <iostream>
#include <map>

#include "cli/submission.h"
#include "cli/submit_options.h"
#include "cli/text.h"
#include "core/text.h"

namespace cli {
namespace {

constexpr std::chrono::seconds kSweepLimit{120};  // a transaction may store ten thousand jobs
constexpr std::size_t kMostBytes = 31 << 20;      // the controller's limit for one call

std::string jobs_text(const muster::v1::SubmitSweepResponse& response) {
  const auto& ids = response.job_ids();
  const auto count = core::count_text(static_cast<std::size_t>(ids.size()), "job");
  if (ids.empty()) return count;
  const bool in_a_row = *ids.rbegin() - *ids.begin() + 1 == ids.size();
  return count + ", " + std::to_string(*ids.begin()) +
         (ids.size() == 1 ? "" : (in_a_row ? " to " : " and others to ") + std::to_string(*ids.rbegin()));
}

/// Waits for the jobs one after the other. A job that has ended in the meantime needs no wait.
int wait_for_all(Client& client, const muster::v1::SubmitSweepResponse& response) {
  int succeeded = 0;
  std::string others;
  for (const auto id : response.job_ids()) {
    muster::v1::Job job;
    const auto end = wait_for_end(client, id, &job);
    if (end != StreamEnd::kComplete) {
      std::cerr << "muster: sweep " << response.sweep() << " goes on; watch it with muster list -w --sweep "
                << response.sweep() << ", cancel it with muster cancel --sweep " << response.sweep() << "\n";
      return end == StreamEnd::kTimedOut ? kTimedOut : kInterrupted;
    }
    if (job.state() == "succeeded") {
      ++succeeded;
      continue;
    }
    std::cerr << "muster: job " << id << " " << outcome_text(job) << "\n";
    append(others, std::to_string(id));
  }
  std::cerr << "muster: sweep " << response.sweep() << ": " << succeeded << " of " << response.job_ids_size()
            << " succeeded" << (others.empty() ? "" : "; look at muster show " + others) << "; muster results --sweep "
            << response.sweep() << " compares them\n";
  return others.empty() ? kSuccess : kJobFailed;
}

/// Moves the submitter's variables, which all jobs share, into one place of the call. With ten thousand jobs they would
/// be most of its size.
void share_submitted_env(muster::v1::SubmitSweepRequest& call) {
  const auto texts = [](const muster::v1::JobSpec& spec) {
    return std::map<std::string, std::string>(spec.submitted_env().begin(), spec.submitted_env().end());
  };
  const auto first = texts(call.specs(0));
  if (!std::ranges::all_of(call.specs(), [&](const auto& spec) { return texts(spec) == first; })) return;
  *call.mutable_submitted_env() = call.specs(0).submitted_env();
  for (auto& spec : *call.mutable_specs()) spec.clear_submitted_env();
}

}  // namespace

int submit_sweep(Session& session, const SubmitOptions& options, const Request& request) {
  muster::v1::SubmitSweepRequest call;
  for (const auto& spec : request.specs) *call.add_specs() = spec;
  share_submitted_env(call);
  call.set_request_id(fresh_request_id());
  call.set_user(user_name());
  call.set_parallel(request.parallel);
  if (call.ByteSizeLong() > kMostBytes) {
    throw Failure(kUsage,
                  "the sweep's jobs together are larger than 31 MiB; give it fewer values, or submit it in parts");
  }
  auto& client = session.client_unconnected();
  const auto response = submit_surely(client, &JobStub::SubmitSweep, call, kSweepLimit);
  if (options.json) {
    print_json(json_of(response));
  } else {
    std::cout << response.sweep() << "\n";
  }
  std::cout << std::flush;
  const auto parallel = request.parallel > 0 ? ", " + std::to_string(request.parallel) + " at a time" : "";
  std::cerr << "muster: submitted sweep " << response.sweep() << ": " << jobs_text(response) << parallel
            << "; compare them with muster results --sweep " << response.sweep() << "\n";
  return options.wait ? wait_for_all(client, response) : kSuccess;
}

}  // namespace cli
