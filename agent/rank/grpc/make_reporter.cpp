// Part of muster-worker itself: the one place that knows whether this build has gRPC.
#include <cstdio>

#include "agent/rank/environment.h"
#include "agent/rank/jsonl_reporter.h"
#include "agent/rank/reporter.h"

#ifdef MUSTER_WITH_GRPC
#include "agent/rank/grpc/grpc_reporter.h"
#endif

namespace agent::rank {

std::unique_ptr<Reporter> make_reporter(const RankEnvironment& environment) {
  if (environment.controller) {
#ifdef MUSTER_WITH_GRPC
    return make_grpc_reporter(environment);
#else
    std::fprintf(stderr, "warning: MUSTER_CONTROLLER is set but this build has no gRPC; metrics go to %s\n",
                 environment.metrics_file.c_str());
#endif
  }
  return std::make_unique<JsonlReporter>(environment.metrics_file, environment.master);
}

}  // namespace agent::rank
