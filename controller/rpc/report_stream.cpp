#include "rpc/report_stream.h"

#include <utility>
#include <vector>

#include "rpc/server.h"
#include "schema/series.h"

namespace rpc {
namespace {

constexpr int kMaxSignals = 64;

grpc::Status leaving() {
  return failure(grpc::StatusCode::UNAVAILABLE, "musterd is leaving; open the stream again when it is back");
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

template <typename Request, typename Response>
void ReportStream<Request, Response>::begin(std::shared_ptr<ReportStream> self) {
  self_ = std::move(self);
  this->StartRead(&request_);
}

// A thread that reads from all ranks.
template <typename Request, typename Response>
void ReportStream<Request, Response>::OnReadDone(bool ok) {
  if (!ok) return end(grpc::Status::OK);
  if (taker_ == nullptr) {
    if (auto status = check_key(request_.has_key(), request_.key()); !status.ok()) return end(std::move(status));
    streams_.callers_.note_rank(context_, {request_.key().job_id(), request_.key().attempt()});
    // The context is gone when stop() ends this stream while it opens.
    if (!streams_.pool_.post(
            [self = this->shared_from_this(), token = bearer_token(context_)] { self->open(token); })) {
      end(busy());
    }
    return;
  }
  take();
}

// A thread that may wait. Nothing is read meanwhile.
template <typename Request, typename Response>
void ReportStream<Request, Response>::open(const std::string& token) {
  std::shared_ptr<ranks::StreamOf<Request>> taker;
  const auto status = guarded([&] {
    return answer(streams_.open_taker_(request_.key(), token, [this](const Response& answer) { tell(answer); }),
                  &taker);
  });
  if (!status.ok()) return end(status);
  {
    const std::lock_guard lock(mutex_);
    if (!ending_) taker_ = taker;
  }
  if (taker_ == nullptr) return taker->close();
  take();
}

template <typename Request, typename Response>
void ReportStream<Request, Response>::take() {
  if (auto status = check(request_); !status.ok()) return end(std::move(status));
  const auto must_write = taker_->beat(request_);
  if (!must_write.ok()) return end(failure(must_write.refusal()));
  // If the pool is full, the next request asks again.
  if (must_write.value()) (void)streams_.pool_.post([taker = taker_] { taker->work(); });
  const std::lock_guard lock(mutex_);
  // After the end nothing may begin.
  if (!ending_) this->StartRead(&request_);
}

template <typename Request, typename Response>
void ReportStream<Request, Response>::tell(const Response& answer) {
  const std::lock_guard lock(mutex_);
  if (ending_) return;
  if (is_writing_) {
    next_ = answer;
    return;
  }
  is_writing_ = true;
  writing_ = answer;
  this->StartWrite(&writing_);
}

template <typename Request, typename Response>
void ReportStream<Request, Response>::OnWriteDone(bool ok) {
  std::unique_lock lock(mutex_);
  is_writing_ = false;
  if (!ok && !ending_) ending_ = grpc::Status::CANCELLED;
  if (ending_) return finish(lock);
  if (!next_) return;
  is_writing_ = true;
  writing_ = *std::exchange(next_, std::nullopt);
  this->StartWrite(&writing_);
}

template <typename Request, typename Response>
void ReportStream<Request, Response>::end(grpc::Status status) {
  std::unique_lock lock(mutex_);
  if (!ending_) ending_ = std::move(status);
  finish(lock);
}

template <typename Request, typename Response>
void ReportStream<Request, Response>::finish(std::unique_lock<std::mutex>& lock) {
  if (is_writing_ || std::exchange(is_finished_, true)) return;
  lock.unlock();
  this->Finish(*ending_);
}

template <typename Request, typename Response>
void ReportStream<Request, Response>::OnDone() {
  const auto self = std::move(self_);
  if (taker_) taker_->close();
  const std::lock_guard lock(streams_.mutex_);
  streams_.open_.erase(self);
}

template <typename Request, typename Response>
grpc::ServerBidiReactor<Request, Response>* ReportStreams<Request, Response>::open(
    const grpc::CallbackServerContext& context) {
  auto stream = std::make_shared<ReportStream<Request, Response>>(*this, context);
  bool stopping = false;
  {
    const std::lock_guard lock(mutex_);
    stopping = stopping_;
    open_.insert(stream);
  }
  auto* reactor = stream.get();
  stream->begin(stream);
  if (stopping) stream->end(leaving());
  return reactor;
}

template <typename Request, typename Response>
void ReportStreams<Request, Response>::stop() {
  std::vector<std::shared_ptr<ReportStream<Request, Response>>> open;
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
    open.assign(open_.begin(), open_.end());
  }
  for (const auto& stream : open) stream->end(leaving());
}

template class ReportStreams<muster::v1::HeartbeatRequest, muster::v1::BeatResponse>;
template class ReportStreams<muster::v1::TaskRequest, muster::v1::TaskResponse>;

}  // namespace rpc
