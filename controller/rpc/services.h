#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>
#include <string>

#include "controller/rpc/call.h"
#include "controller/rpc/followers.h"
#include "controller/rpc/read_guard.h"

namespace rpc {

namespace v1 = muster::v1;

/// The calls of people, see job_service.proto and admin_service.proto. They are synchronous, since people make few
/// calls. Those with more than one message are not, since thousands may wait, for the job or for their client.
std::unique_ptr<grpc::Service> make_job_service(service::Controller& controller, const Callers& callers,
                                                Followers& followers);
std::unique_ptr<grpc::Service> make_admin_service(service::Controller& controller, const Callers& callers);

// Checks of what ranks and their tasks send: rank_requests.cpp.

/// Last words, node names, endpoints, paths of checkpoints, notes about lines, errors of one line. muster's own
/// programs send less, so what is longer is no rank's.
inline constexpr std::size_t kMaxText = 4096;
grpc::Status invalid(const std::string& text);
/// Too many calls of ranks wait.
grpc::Status busy();
/// Refuses requests that no rank and no task sends.
grpc::Status check_key(bool has_key, const v1::RankKey& key);
grpc::Status check(const v1::RegisterRequest& request);
grpc::Status check(const v1::HeartbeatRequest& request);
grpc::Status check(const v1::TaskRequest& request);
grpc::Status check(const v1::KeepStackRequest& request);

/// The service for what ranks and their tasks tell: thousands of them, a heartbeat a second each. Heartbeats come on
/// streams (ReportStreams) and are noted by the thread that reads them. Calls hold no thread while they wait: the
/// controller is asked from a fixed number of threads. Its `rendezvous` must answer at once, the waiting is done here.
struct RankService {
  std::unique_ptr<grpc::Service> calls;
  /// Ranks that wait are told "not yet", now and later. Ranks and tasks with a stream are told to come back.
  std::function<void()> stop;
};
/// `guard` watches the connections of ranks. `probe`: tells musterd's own words from those of ranks; null: there are
/// none.
RankService make_rank_service(service::Controller& controller, const Callers& callers, ReadGuard& guard,
                              ReadingProbe* probe);

// Sources of what followers are told. `request` must live as long as the source.

/// The job now, and again after each change, until it has ended.
std::unique_ptr<Source<v1::Job>> watch_source(service::Controller& controller, const v1::GetRequest& request);
/// The state of a trace, and again after each change if the request follows.
std::unique_ptr<Source<v1::TraceView>> trace_source(service::Controller& controller, const v1::TraceRequest& request);
std::unique_ptr<Source<v1::Event>> events_source(service::Controller& controller, const v1::EventsRequest& request);
std::unique_ptr<Source<v1::Metric>> metrics_source(service::Controller& controller, const v1::MetricsRequest& request);
/// Every value of one series of a sweep's jobs, a page a message; of steps whose rows have aged out, the points of the
/// job's curve. It ends when everything was sent.
std::unique_ptr<Source<v1::JobMetrics>> sweep_metrics_source(service::Controller& controller,
                                                             const v1::SweepMetricsRequest& request);
/// The stacks of an attempt. What the request asks for is waited for. All but the texts come first, then the ranks with
/// their texts, in messages of moderate size.
std::unique_ptr<Source<v1::StacksView>> stacks_source(service::Controller& controller,
                                                      const v1::StacksRequest& request);
/// The log of a job's ranks, see LogsRequest.
///
/// With `follow` the source waits for an attempt or a file that does not exist yet. If the request names no attempt,
/// the source goes on to the next attempt. It ends when no process writes any more and everything was sent. If the
/// request asks for the last lines, it begins with an empty chunk for each rank, so that a client that loses the
/// connection knows where these lines began. Uses one chunk of 64 KiB of memory.
std::unique_ptr<Source<v1::LogChunk>> logs_source(service::Controller& controller, const v1::LogsRequest& request);

}  // namespace rpc
