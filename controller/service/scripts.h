#pragma once

#include <filesystem>
#include <string>
#include <vector>

#include "actions/action_runner.h"
#include "service/submission.h"

namespace runtime {

/// Shows the batch scripts that a submission would be handed over with, and what Slurm says of them. Stores nothing.
class Scripts {
 public:
  struct Parts {
    Executor& executor;
    Clock& clock;
    EventLog& event_log;
    Partitions& partitions;
    ActionRunner& runner;
    Submission& submission;
    const DataFolder& data;
    const std::string& secret;
    std::filesystem::path worker_program;
    std::string why_no_slurm;
  };
  explicit Scripts(Parts parts) : parts_(std::move(parts)) {}

  Outcome<muster::v1::PlanScriptResponse> plan(const muster::v1::PlanScriptRequest& request);
  Outcome<muster::v1::CheckScriptResponse> check(const muster::v1::PlanScriptRequest& request);

 private:
  /// The first attempts, as they would be launched if they were submitted next.
  Outcome<std::vector<LaunchRequest>> planned(const muster::v1::PlanScriptRequest& request);
  /// Whether such a job of a sweep is handed over together with others.
  bool goes_together(const muster::v1::JobSpec& spec, const std::string& user) const;
  /// What the executor would hand over of them.
  Outcome<std::vector<std::string>> scripts_of(const std::vector<LaunchRequest>& requests);
  /// Why such a job has no script.
  Refusal no_script(const LaunchRequest& request) const;

  Parts parts_;
};

}  // namespace runtime
