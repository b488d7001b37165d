#include "ranks/task_streams.h"

#include <mutex>
#include <optional>
#include <utility>

namespace ranks {

executors::TaskReport report_of(const muster::v1::TaskRequest& request) {
  using Process = executors::TaskReport::Process;
  executors::TaskReport report;
  switch (request.state()) {
    case muster::v1::PROCESS_RUNNING:
      report.process = Process::kRunning;
      break;
    case muster::v1::PROCESS_STOPPED:
      report.process = Process::kStopped;
      break;
    case muster::v1::PROCESS_EXITED:
      report.process = Process::kExited;
      break;
    case muster::v1::PROCESS_STEP_LOST:
      report.process = Process::kStepLost;
      break;
    default:
      break;
  }
  report.node = request.node();
  report.pid = request.pid();
  report.exit = {request.exit_code(), request.signal()};
  report.out_of_memory = request.out_of_memory();
  report.error = request.error();
  report.trouble = request.trouble();
  report.ended_at = core::Millis(request.ended_at_ms());
  report.signals_seen.assign(request.signals_seen().begin(), request.signals_seen().end());
  return report;
}

class TaskStreams::Stream : public TaskStream, public AttemptStreams::Stream {
 public:
  Stream(TaskStreams& streams, Rank rank, std::shared_ptr<AttemptStreams::Attempt> attempt, TellTask tell)
      : streams_(streams), rank_(rank), attempt_(std::move(attempt)), tell_(std::move(tell)) {}
  ~Stream() override { close(); }

  base::Outcome<bool> beat(const muster::v1::TaskRequest& request) override {
    const auto standing = attempt_->now();
    if (standing.current || standing.upcoming) {
      streams_.parts_.executor.task(rank_.attempt, rank_.rank, report_of(request));
    }
    std::lock_guard lock(mutex_);
    ++heard_;
    answer_if_due(request.answer_soon());
    return false;
  }
  void close() override {
    {
      std::lock_guard lock(mutex_);
      if (!std::exchange(tell_, nullptr)) return;
    }
    streams_.attempts_.forget(rank_.attempt, this);
  }
  void news() override {
    std::lock_guard lock(mutex_);
    if (answered_at_) answer_if_due(false);
  }

 private:
  void answer_if_due(bool asked) {
    if (!tell_) return;
    const auto now = streams_.parts_.clock.monotonic();
    const auto standing = attempt_->now();
    const auto interval = streams_.parts_.pace.interval(rank_.interval);
    const bool is_told = answered_at_ && standing == told_standing_ && interval == told_interval_;
    if (is_told && !asked && now - *answered_at_ < AttemptStreams::kAnswerEvery) return;
    answered_at_ = now;
    told_standing_ = standing;
    told_interval_ = interval;
    auto answer = streams_.answer(rank_, standing);
    answer.set_requests_heard(heard_);
    tell_(answer);
  }

  TaskStreams& streams_;
  const Rank rank_;
  const std::shared_ptr<AttemptStreams::Attempt> attempt_;

  std::mutex mutex_;
  TellTask tell_;            // null: closed
  std::uint64_t heard_ = 0;  // requests
  // The newest answer.
  std::optional<core::Millis> answered_at_;
  AttemptStanding told_standing_;
  core::Millis told_interval_{0};
};

muster::v1::TaskResponse TaskStreams::answer(const Rank& rank, const AttemptStanding& standing) const {
  muster::v1::TaskResponse response;
  response.set_directive(standing.directive);
  response.set_interval_ms(parts_.pace.interval(rank.interval).count());
  if (standing.directive == muster::v1::DIRECTIVE_CONTINUE) return response;
  const bool save = standing.directive == muster::v1::DIRECTIVE_SAVE_AND_LEAVE;
  response.set_stop_why(executors::stop_word(standing.cause));
  response.set_stop_grace_ms((save ? rank.save_grace : rank.stop_grace).count());
  return response;
}

std::shared_ptr<TaskStream> TaskStreams::open(const Rank& rank, TellTask tell,
                                              const std::function<AttemptStanding()>& standing) {
  return attempts_.open(rank.attempt, standing, [&](auto attempt) {
    return std::make_shared<Stream>(*this, rank, std::move(attempt), std::move(tell));
  });
}

}  // namespace ranks
