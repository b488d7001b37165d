#pragma once

#include <memory>

#include "controller/rpc/followers.h"

namespace rpc {

// Sources of what followers are told. `request` must live as long as the source.

/// The job now, and again after each change, until it has ended.
std::unique_ptr<Source<muster::v1::Job>> watch_source(service::Controller& controller,
                                                      const muster::v1::GetRequest& request);
/// The state of a trace, and again after each change if the request follows.
std::unique_ptr<Source<muster::v1::TraceView>> trace_source(service::Controller& controller,
                                                            const muster::v1::TraceRequest& request);
std::unique_ptr<Source<muster::v1::Event>> events_source(service::Controller& controller,
                                                         const muster::v1::EventsRequest& request);
std::unique_ptr<Source<muster::v1::Metric>> metrics_source(service::Controller& controller,
                                                           const muster::v1::MetricsRequest& request);
/// Every value of one series of a sweep's jobs, a page a message; of steps whose rows have aged out, the points of the
/// job's curve. It ends when everything was sent.
std::unique_ptr<Source<muster::v1::JobMetrics>> sweep_metrics_source(service::Controller& controller,
                                                                     const muster::v1::SweepMetricsRequest& request);
/// The stacks of an attempt. What the request asks for is waited for. All but the texts come first, then the ranks with
/// their texts, in messages of moderate size.
std::unique_ptr<Source<muster::v1::StacksView>> stacks_source(service::Controller& controller,
                                                              const muster::v1::StacksRequest& request);
/// The log of a job's ranks, see LogsRequest.
///
/// With `follow` the source waits for an attempt or a file that does not exist yet. If the request names no attempt,
/// the source goes on to the next attempt. It ends when no process writes any more and everything was sent. If the
/// request asks for the last lines, it begins with an empty chunk for each rank, so that a client that loses the
/// connection knows where these lines began. Uses one chunk of 64 KiB of memory.
std::unique_ptr<Source<muster::v1::LogChunk>> logs_source(service::Controller& controller,
                                                          const muster::v1::LogsRequest& request);

}  // namespace rpc
