#include <unistd.h>

#include <algorithm>
#include <utility>

#include "agent/rank/grpc/grpc_reporter_thread.h"
#include "base/host_name.h"
#include "base/process_table.h"

namespace agent::rank {
namespace {

using std::chrono::milliseconds;
namespace v1 = muster::v1;

constexpr milliseconds kCallLimit{2'000};
constexpr milliseconds kLeastInterval{10};
constexpr milliseconds kMostInterval{60'000};
/// The controller answers a stream every five seconds at the least.
constexpr milliseconds kUnansweredLimit{15'000};
/// Rows of a stream are durable and acknowledged by then.
constexpr milliseconds kUntakenAfter{8'000};

}  // namespace

GrpcReporter::Sent GrpcReporter::send(Lock& lock) {
  return registered_ ? send_beat(lock) : send_register(lock);
}

milliseconds GrpcReporter::call_limit() const {
  if (!leaving_) return kCallLimit;
  const auto left = std::chrono::duration_cast<milliseconds>(leave_by() - Clock::now());
  return std::clamp(left, milliseconds(1), kCallLimit);
}

GrpcReporter::Sent GrpcReporter::send_register(Lock& lock) {
  v1::RegisterRequest request;
  *request.mutable_key() = key_;
  request.set_world_size(static_cast<std::uint32_t>(world_size_));
  request.set_pid(options_.pid != 0 ? options_.pid : ::getpid());
  request.set_node(base::node_name());
  v1::RegisterResponse response;
  const auto limit = call_limit();
  lock.unlock();
  const auto status = client_->call(request, response, limit);
  lock.lock();
  if (!status.ok()) return failed(status);
  registered_ = true;
  heard(response.directive(), response.heartbeat_interval_ms());
  return Sent::kMore;
}

v1::HeartbeatRequest GrpcReporter::heartbeat() const {
  v1::HeartbeatRequest request;
  *request.mutable_key() = key_;
  write(news_, request);
  if (!options_.for_another) {
    const auto memory = base::process_memory();
    request.set_memory_bytes(memory.resident_bytes);
    request.set_memory_peak_bytes(memory.peak_bytes);
  }
  return request;
}

void GrpcReporter::add_program(v1::HeartbeatRequest& request) const {
  if (words_number_ > 0) *request.mutable_program() = wire(news_.words);
}

// Traces of another process are not recorded, and nothing is said of them.
void GrpcReporter::add_trace(v1::HeartbeatRequest& request) const {
  if (!options_.for_another) *request.mutable_trace() = wire(trace_);
}

void GrpcReporter::add_last_words(v1::HeartbeatRequest& request) const {
  add_program(request);
  request.set_leaving(true);
  // muster-worker says so before it leaves, and ranks are put in order by that. Of another process it would come late.
  if (!options_.for_another) request.set_exit_code(leaving_->exit_code);
  request.set_leaving_reason(leaving_->reason);
}

// The controller answers at once only what it is asked to. What is asked for is waited for.
GrpcReporter::Sent GrpcReporter::send_beat(Lock& lock) {
  const bool opens = stream_ == nullptr;
  const bool probing = suspect_;
  auto request = heartbeat();
  GrpcOutbox::Batch batch;
  if (!probing) batch = outbox_.fill(request);
  const bool last = leaving_ && !probing && outbox_.fits_one_batch();
  const auto words = words_number_;
  const auto trace = trace_number_;
  if (opens || words_told_ != words) add_program(request);
  if (opens || trace_told_ != trace) add_trace(request);
  if (last) add_last_words(request);
  request.set_first_metric(batch.first_step);
  request.set_first_checkpoint(batch.first_checkpoint);
  const bool waits = opens || probing || leaving_ || batch.full || batch.checkpoints > 0 || !files_->holds_nothing();
  request.set_answer_soon(waits);
  const auto until = Clock::now() + call_limit();
  lock.unlock();
  if (opens) {
    stream_ = std::make_unique<BeatStream>(
        *client_, [this](const v1::BeatResponse& answer) { answered(answer); },
        [this] {
          std::lock_guard own(mutex_);
          wake_.notify_all();
        });
  }
  const auto left = std::chrono::duration_cast<milliseconds>(until - Clock::now());
  const bool written = stream_->write(request, std::max(left, milliseconds(1)));
  lock.lock();
  const auto ended = [&] { return quit_ || stop_ == StopKind::kNow || stream_->end(); };
  const auto heard = [&] { return answer_.requests_heard() >= stream_->written(); };
  const auto settled = [&] { return heard() && (outbox_.is_acknowledged(batch) || answer_.store_waits()); };
  if (written && waits) wake_.wait_until(lock, until, [&] { return ended() || settled(); });
  const auto now = Clock::now();
  const bool unanswered = now - answered_at_ > kUnansweredLimit + 3 * interval_;
  if (!written || stream_->end() || (waits && opens && !heard()) || (!opens && unanswered)) {
    return beat_ended(lock, batch);
  }
  words_told_ = words;
  trace_told_ = trace;
  if (probing) {
    drop_refused();
    return Sent::kMore;
  }
  const bool whole = outbox_.is_acknowledged(batch);
  if (whole) acknowledged_at_ = now;
  const bool late = now - acknowledged_at_ > kUntakenAfter + interval_;
  if (!whole && (waits || late || answer_.store_waits())) return Sent::kUntaken;
  if (last && !heard()) return Sent::kUntaken;
  if (batch.full || (leaving_ && !last)) return Sent::kMore;
  return whole ? Sent::kAll : Sent::kPassed;
}

GrpcReporter::Sent GrpcReporter::beat_ended(Lock& lock, const GrpcOutbox::Batch& batch) {
  close_stream(lock);
  const auto status = ended_with_;
  if (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT && !batch.empty()) suspect_ = true;
  return failed(status);
}

// Its thread may be about to tell an answer, so the lock is released meanwhile.
void GrpcReporter::close_stream(Lock& lock) {
  lock.unlock();
  const auto end = stream_->end();
  ended_with_ = end.value_or(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "no answer"));
  if (ended_with_.ok()) ended_with_ = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the stream was closed");
  stream_.reset();
  lock.lock();
  answer_.Clear();
}

// The stream's own thread.
void GrpcReporter::answered(const v1::BeatResponse& answer) {
  std::lock_guard lock(mutex_);
  answer_ = answer;
  answered_at_ = Clock::now();
  const auto waiting = outbox_.waiting();
  outbox_.acknowledge_until(answer.metrics_durable(), answer.checkpoints_durable());
  if (outbox_.waiting() < waiting) acknowledged_at_ = answered_at_;
  heard(answer.directive(), answer.heartbeat_interval_ms());
  // A controller that was started anew may not know of it. It is recorded all the same.
  if (const auto& wish = answer.trace(); wish.number() != 0) {
    trace_wish_ = TraceWish{wish.number(), wish.first_step(), wish.steps()};
  }
  wake_.notify_all();
}

// Drops the reports that the controller called invalid, once it took a heartbeat without them.
void GrpcReporter::drop_refused() {
  suspect_ = false;
  v1::HeartbeatRequest refused;
  const auto culprit = outbox_.fill(refused);
  outbox_.acknowledge(culprit, culprit.steps, culprit.checkpoints);
  say("warning: the controller refuses " + std::to_string(culprit.steps) + " metrics as invalid; they are lost");
}

GrpcReporter::Sent GrpcReporter::failed(const grpc::Status& status) {
  words_told_ = 0;  // a controller that was started anew knows nothing of them
  // It has lost its store, or been given an older one; a controller that learns of this rank again may keep it.
  if (status.error_code() == grpc::StatusCode::NOT_FOUND) registered_ = false;
  if (!away_ && !quit_) {
    away_ = true;
    away_since_ = Clock::now();
    say("warning: the controller at " + to_string(controller_) + " does not take reports (" + status.error_message() +
        "); training goes on and metrics are kept");
  }
  return Sent::kFailed;
}

bool GrpcReporter::keep_unsent() {
  auto news = heartbeat();
  if (leaving_) add_last_words(news);
  return files_->keep(outbox_, news);
}

std::string GrpcReporter::loss() const {
  const auto* const why = away_      ? "which does not take reports now"
                          : untaken_ ? "whose store takes nothing now"
                                     : "which takes them more slowly than they come";
  return "warning: the oldest metrics are being lost: " + std::to_string(outbox_.waiting()) +
         " reports wait for the controller, " + why;
}

void GrpcReporter::heard(v1::Directive directive, std::int64_t interval_ms) {
  backoff_.reset();
  if (interval_ms > 0) interval_ = std::clamp(milliseconds(interval_ms), kLeastInterval, kMostInterval);
  if (away_) {
    away_ = false;
    const auto away = std::chrono::duration_cast<std::chrono::seconds>(Clock::now() - away_since_);
    std::string text = "the controller is back after " + std::to_string(away.count()) + " s; sending " +
                       std::to_string(outbox_.waiting()) + " kept reports";
    if (outbox_.lost() > 0) text += ", " + std::to_string(outbox_.lost()) + " older ones were lost";
    say(text);
  }
  follow(directive);
}

void GrpcReporter::follow(v1::Directive directive) {
  if (options_.for_another) return;
  if (directive == v1::DIRECTIVE_STOP && stop_ != StopKind::kNow) {
    fenced_at_ = Clock::now();
    stop_ = StopKind::kNow;
    say("the controller says that this attempt is over: leaving at once");
    wake_.notify_all();
  } else if (directive == v1::DIRECTIVE_SAVE_AND_LEAVE && stop_ == StopKind::kNone) {
    stop_ = StopKind::kSave;
  }
}

}  // namespace agent::rank
