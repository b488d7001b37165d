// Checks of what ranks and the tasks beside them send.
#include "controller/rpc/rpc_server.h"
#include "controller/rpc/services.h"
#include "spec/series.h"

namespace rpc {
namespace {

// The bounds of each field besides kMaxText.
/// Names of sections, types of errors.
constexpr std::size_t kMaxName = 512;
/// The stack in a program's error.
constexpr std::size_t kMaxTrace = 64 * 1024;
/// The settings of a program's run.
constexpr std::size_t kMaxConfig = 64 * 1024;
/// Steps of a trace, see agent::protocol::kMostTraceSteps.
constexpr int kMaxStepsWritten = 10'000;
constexpr int kMaxSignals = 64;

/// The first text that is too long; OK: none is.
class Texts {
 public:
  Texts& check(const char* field, const std::string& text, std::size_t most) {
    if (status_.ok() && text.size() > most) {
      status_ =
          invalid(std::string(field) + ": " + std::to_string(text.size()) + " bytes; at most " + std::to_string(most));
    }
    return *this;
  }
  const grpc::Status& status() const { return status_; }

 private:
  grpc::Status status_;
};

grpc::Status check_texts(const muster::v1::HeartbeatRequest& request) {
  const auto& program = request.program();
  const auto& error = program.error();
  Texts texts;
  texts.check("leaving_reason", request.leaving_reason(), kMaxText)
      .check("section_name", request.section_name(), kMaxName)
      .check("program.status", program.status(), kMaxText)
      .check("program.config", program.config(), kMaxConfig)
      .check("program.first_bad_line", program.first_bad_line(), kMaxText)
      .check("program.source_trouble", program.source_trouble(), kMaxText)
      .check("program.error.type", error.type(), kMaxName)
      .check("program.error.message", error.message(), kMaxText)
      .check("program.error.trace", error.trace(), kMaxTrace)
      .check("trace.problem", request.trace().problem(), kMaxText);
  for (const auto& checkpoint : request.checkpoints()) texts.check("checkpoints.path", checkpoint.path(), kMaxText);
  for (const auto& series : request.series()) {
    texts.check("series.name", series.name(), kMaxName)
        .check("series.unit", series.unit(), kMaxName)
        .check("series.better", series.better(), kMaxName)
        .check("series.over_ranks", series.over_ranks(), kMaxName);
  }
  for (const auto& metric : request.metrics()) {
    for (const auto& value : metric.values()) texts.check("metrics.values.series", value.series(), kMaxText);
  }
  return texts.status();
}

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
  if (request.series_size() > static_cast<int>(spec::kMostSeries)) {
    return invalid("a heartbeat with " + std::to_string(request.series_size()) + " series; a job has at most " +
                   std::to_string(spec::kMostSeries));
  }
  for (const auto& metric : request.metrics()) {
    if (metric.values_size() <= static_cast<int>(spec::kMostSeries)) continue;
    return invalid("step " + std::to_string(metric.step()) + " with " + std::to_string(metric.values_size()) +
                   " values; a job has at most " + std::to_string(spec::kMostSeries) + " series");
  }
  if (request.trace().steps_written_size() > kMaxStepsWritten) {
    return invalid("trace.steps_written: " + std::to_string(request.trace().steps_written_size()) + " steps; at most " +
                   std::to_string(kMaxStepsWritten));
  }
  return check_texts(request);
}

grpc::Status check(const muster::v1::TaskRequest& request) {
  if (request.signals_seen_size() > kMaxSignals) return invalid("signals_seen: at most 64");
  Texts texts;
  texts.check("node", request.node(), kMaxText)
      .check("slurm_job", request.slurm_job(), kMaxName)
      .check("trouble", request.trouble(), kMaxText)
      .check("error", request.error(), kMaxTrace);
  return texts.status();
}

// The controller bounds the text: it keeps it.
grpc::Status check(const muster::v1::KeepStackRequest& request) {
  return request.number() == 0 ? invalid("number: want the number that was asked for") : grpc::Status::OK;
}

}  // namespace rpc
