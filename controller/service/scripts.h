#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "actions/action_runner.h"
#include "service/submission.h"

namespace service {

/// Shows the batch scripts that a submission would be handed over with, and what Slurm says of them. Stores nothing.
class Scripts {
 public:
  struct Parts {
    executors::Executor& executor;
    base::Clock& clock;
    jobs::EventLog& event_log;
    partitions::Partitions& partitions;
    actions::ActionRunner& runner;
    Submission& submission;
    const base::DataFolder& data;
    const std::string& secret;
    std::filesystem::path worker_program;
    std::string why_no_slurm;
  };
  explicit Scripts(Parts parts) : parts_(std::move(parts)) {}

  base::Outcome<muster::v1::PlanScriptResponse> plan(const muster::v1::PlanScriptRequest& request);
  base::Outcome<muster::v1::CheckScriptResponse> check(const muster::v1::PlanScriptRequest& request);

 private:
  /// The first attempts, as they would be launched if they were submitted next.
  base::Outcome<std::vector<executors::LaunchRequest>> planned(const muster::v1::PlanScriptRequest& request);
  /// Whether such a job of a sweep is handed over together with others.
  bool goes_together(const muster::v1::JobSpec& spec, const std::string& user) const;
  /// What the executor would hand over of them.
  base::Outcome<std::vector<std::string>> scripts_of(const std::vector<executors::LaunchRequest>& requests);
  /// Why such a job has no script.
  base::Refusal no_script(const executors::LaunchRequest& request) const;

  Parts parts_;
};

}  // namespace service
