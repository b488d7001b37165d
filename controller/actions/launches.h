#pragma once

#include <optional>
#include <utility>
#include <variant>
#include <vector>

#include "actions/launch_plan.h"
#include "actions/outbox.h"
#include "admission/admission.h"
#include "executors/executor.h"
#include "jobs/event_log.h"
#include "jobs/spec_cache.h"
#include "partitions/partitions.h"

namespace actions {

/// Launches attempts that may start: from their rows in the outbox to what executors answer.
///
/// A row is `launching`, durably, before an executor is asked. It is done when the answer is durable, and pending again
/// when there is surely no attempt. While it is launching the attempt may be there, so its job keeps its slots, and
/// where the job is not to start any more its executor is asked whether there is something to follow or to stop.
class Launches {
 public:
  struct Parts {
    store::Store& store;
    executors::Executor& executor;
    base::Clock& clock;
    jobs::EventLog& event_log;
    jobs::SpecCache& specs;
    admission::Admission& admission;
    partitions::Partitions& partitions;
    core::Millis excluded_for = executors::kExcludedFor;
  };
  Launches(Outbox& outbox, Parts parts) : outbox_(outbox), parts_(parts) {}

  void start(LaunchSettings settings) { settings_ = std::move(settings); }
  /// Starts whose jobs have their slots, or that have nothing to start any more. Of several all are first attempts of
  /// one sweep. Never throws.
  void perform(const std::vector<Outbox::Row>& batch);
  /// Adds to each request the nodes that were lost lately, as before every launch.
  void leave_out_lost_nodes(std::vector<executors::LaunchRequest>& requests) const;
  executors::LostNodes nodes_lost_lately() const;

 private:
  /// Nothing: it is over. Otherwise when to try again.
  using Result = std::optional<executors::LaunchLater>;
  using Results = std::vector<Result>;
  Results launch(const std::vector<Outbox::Row>& batch);
  /// What is to be launched, or what the answer is without that; neither: nothing is to be done any more.
  std::variant<std::monostate, executors::LaunchRequest, executors::LaunchAnswer> prepare(const Outbox::Row& row);
  /// What to launch, or why that can't be.
  std::variant<executors::LaunchRequest, core::AttemptLaunchFailed, executors::LaunchLater> plan(
      const core::Job& job, core::AttemptNumber attempt);
  /// Of a launch that may have happened and is not to happen any more: what there is; nullopt: surely nothing.
  std::optional<executors::LaunchAnswer> look(const core::AttemptKey& key);
  std::vector<executors::LaunchAnswer> ask(const std::vector<Outbox::Row>& batch,
                                           const std::vector<std::size_t>& places,
                                           std::vector<executors::LaunchRequest>& requests);
  /// Keeps what executors answered.
  void keep(const std::vector<Outbox::Row>& batch, std::vector<std::pair<std::size_t, executors::LaunchAnswer>> answers,
            Results& results);
  void stop_unwanted(const core::AttemptKey& key);
  void finish(const std::vector<Outbox::Row>& batch, const Results& results);

  Outbox& outbox_;
  const Parts parts_;
  LaunchSettings settings_;
};

}  // namespace actions
