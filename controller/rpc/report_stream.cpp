#include "rpc/report_stream.h"

#include "rpc/server.h"
#include "schema/series.h"

namespace rpc {
namespace {

constexpr int kMaxSignals = 64;

}  // namespace

grpc::Status invalid(const std::string& text) {
  return failure(grpc::StatusCode::INVALID_ARGUMENT, text);
}

grpc::Status busy() {
  return failure(grpc::StatusCode::RESOURCE_EXHAUSTED,
                 "max_rank_calls: " + std::to_string(kMaxRankCalls) + " calls of ranks wait already; try again later");
}

grpc::Status check_key(bool has_key, const muster::v1::RankKey& key) {
  if (has_key && key.job_id() > 0 && key.attempt() > 0) return grpc::Status::OK;
  return invalid("key: want job_id and attempt, both from 1");
}

grpc::Status check(const muster::v1::RegisterRequest& request) {
  return request.node().size() > kMaxText ? invalid("node: at most 4096 characters") : grpc::Status::OK;
}

grpc::Status check(const muster::v1::HeartbeatRequest& request) {
  if (request.metrics_size() > kMaxMetricsAHeartbeat || request.checkpoints_size() > kMaxMetricsAHeartbeat) {
    return invalid("a heartbeat with " + std::to_string(request.metrics_size()) + " metrics and " +
                   std::to_string(request.checkpoints_size()) + " checkpoints; at most " +
                   std::to_string(kMaxMetricsAHeartbeat) + " of each, send the rest in the next one");
  }
  if (request.series_size() > static_cast<int>(schema::kMostSeries)) {
    return invalid("a heartbeat with " + std::to_string(request.series_size()) + " series; a job has at most " +
                   std::to_string(schema::kMostSeries));
  }
  for (const auto& metric : request.metrics()) {
    if (metric.values_size() <= static_cast<int>(schema::kMostSeries)) continue;
    return invalid("step " + std::to_string(metric.step()) + " with " + std::to_string(metric.values_size()) +
                   " values; a job has at most " + std::to_string(schema::kMostSeries) + " series");
  }
  if (request.leaving_reason().size() > kMaxText) return invalid("leaving_reason: at most 4096 characters");
  return grpc::Status::OK;
}

grpc::Status check(const muster::v1::TaskRequest& request) {
  if (request.node().size() > kMaxText) return invalid("node: at most 4096 characters");
  if (request.signals_seen_size() > kMaxSignals) return invalid("signals_seen: at most 64");
  return grpc::Status::OK;
}

}  // namespace rpc
