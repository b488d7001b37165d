#pragma once

#include <functional>

#include "controller/service/parts.h"

namespace service {

/// Requests to record steps of a training that runs. The ranks hear of them with the answers to their heartbeats;
/// controller/ranks/live_ranks.h has what they say. Nothing is stored: a request whose attempt ends is over.
/// Thread-safe.
class TraceRequests {
 public:
  /// `tell` lets the ranks of an attempt hear that there is another request.
  TraceRequests(const Parts& parts, std::function<void(const core::AttemptKey&)> tell)
      : parts_(parts), tell_(std::move(tell)) {}

  /// Takes the request, or tells of an earlier one with the same number.
  common::Outcome<muster::v1::TraceView> ask(const muster::v1::TraceRequest& request);

 private:
  common::Outcome<muster::v1::TraceView> take(const muster::v1::TraceRequest& request, const core::Job& job,
                                              const muster::v1::JobSpec& spec);
  muster::v1::TraceView view(const core::Job& job, core::AttemptNumber attempt, const ranks::StepTrace& trace,
                             const muster::v1::JobSpec& spec) const;
  core::Step newest_step(const core::AttemptKey& key, std::uint32_t ranks) const;

  const Parts& parts_;
  const std::function<void(const core::AttemptKey&)> tell_;
};

}  // namespace service
