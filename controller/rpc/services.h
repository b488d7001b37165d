#pragma once

#include <grpcpp/grpcpp.h>

#include <functional>
#include <memory>

#include "controller/rpc/call.h"
#include "controller/rpc/followers.h"
#include "controller/rpc/read_guard.h"

namespace rpc {

/// The calls of people, see job_service.proto and admin_service.proto. They are synchronous, since people make few
/// calls. Those with more than one message are not, since thousands may wait, for the job or for their client.
std::unique_ptr<grpc::Service> make_job_service(service::Controller& controller, const Callers& callers,
                                                Followers& followers);
std::unique_ptr<grpc::Service> make_admin_service(service::Controller& controller, const Callers& callers);

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

}  // namespace rpc
