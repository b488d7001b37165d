#pragma once

#include <optional>
#include <string>
#include <vector>

#include "controller/service/parts.h"

namespace service {

/// Takes jobs and sweeps in: fills defaults, judges the spec, and answers once the first event is durable. Shows the
/// batch scripts that a submission would be handed over with, and what Slurm says of them: that stores nothing.
/// Thread-safe.
class Submission {
 public:
  explicit Submission(const Parts& parts) : parts_(parts) {}

  common::Outcome<muster::v1::SubmitResponse> submit(const muster::v1::SubmitRequest& request);
  common::Outcome<muster::v1::SubmitSweepResponse> submit_sweep(const muster::v1::SubmitSweepRequest& request);
  common::Outcome<muster::v1::PlanScriptResponse> plan_script(const muster::v1::PlanScriptRequest& request);
  common::Outcome<muster::v1::CheckScriptResponse> check_script(const muster::v1::PlanScriptRequest& request);

 private:
  /// Why such a job is not taken, beginning with `place`; fills the defaults.
  std::optional<common::Refusal> judge(muster::v1::JobSpec& spec, const std::string& user,
                                       const std::string& request_id, const std::string& place);
  /// Fills the defaults. Returns everything that is wrong with the spec, a line each; empty: nothing is.
  std::string problems_of(muster::v1::JobSpec& spec) const;
  /// Drops a partition's refusal of a request that was answered before. That request gets the same answer again.
  std::optional<common::Refusal> unless_known(std::optional<common::Refusal> refusal, const std::string& request_id);
  /// The first attempts, as they would be launched if they were submitted next.
  common::Outcome<std::vector<executors::LaunchRequest>> planned(const muster::v1::PlanScriptRequest& request);
  /// True if such a job of a sweep is handed over together with others.
  bool goes_together(const muster::v1::JobSpec& spec, const std::string& user) const;
  struct Scripts {
    std::vector<std::string> texts;
    std::uint32_t one_by_one = 0;  // jobs of a sweep that are handed over alone
  };
  /// The scripts that the executor would hand over.
  common::Outcome<Scripts> scripts_of(const muster::v1::PlanScriptRequest& asked);
  /// Why such a job has no script.
  common::Refusal no_script(const executors::LaunchRequest& request) const;

  const Parts& parts_;
};

}  // namespace service
