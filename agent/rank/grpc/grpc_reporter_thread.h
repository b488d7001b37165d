#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "agent/rank/grpc/grpc_client.h"
#include "agent/rank/grpc/grpc_outbox.h"
#include "agent/rank/grpc/grpc_reporter.h"
#include "agent/rank/grpc/grpc_unsent_file.h"
#include "agent/rank/meeting.h"

namespace agent::rank {

/// The reporter of make_grpc_reporter(). grpc_reporter.cpp has its life, grpc_sending.cpp what it sends and hears.
class GrpcReporter final : public Reporter {
 public:
  GrpcReporter(const RankEnvironment& environment, GrpcReporterOptions options);
  ~GrpcReporter() override;

  void section(Section now) override {
    std::lock_guard lock(mutex_);
    news_.section = now;
  }

  void declare(std::vector<spec::Series> series) override {
    std::lock_guard lock(mutex_);
    outbox_.declare(std::move(series));
  }

  void step(const StepReport& report) override {
    std::lock_guard lock(mutex_);
    news_.step = report.step;
    news_.step_ms = report.step_ms;
    outbox_.add(report);
    if (outbox_.lost() > 0 && !std::exchange(told_loss_, true)) say(loss());
  }

  Backlog backlog() const override {
    std::lock_guard lock(mutex_);
    return {outbox_.is_full(), !outbox_.fits_one_batch(), outbox_.waiting()};
  }

  void resumed_from(std::int64_t step) override {
    std::lock_guard lock(mutex_);
    news_.resumed_from = step;
    news_.step = step;
  }

  void keep() override;

  void checkpoint_saved(std::int64_t step, std::int64_t bytes, double ms) override {
    checkpoint_saved_at("", step, bytes, ms);
  }

  void program(const ProgramWords& words) override {
    std::lock_guard lock(mutex_);
    news_.words = words;
    ++words_number_;
  }

  void checkpoint_saved_at(const std::string& path, std::int64_t step, std::int64_t bytes, double ms) override {
    const auto saved = wire(path, step, bytes, ms);
    std::lock_guard lock(mutex_);
    outbox_.add(saved);
  }

  std::optional<TraceWish> trace_requested() const override {
    std::lock_guard lock(mutex_);
    return trace_wish_;
  }
  void trace(const TraceReport& report) override {
    std::lock_guard lock(mutex_);
    trace_ = report;
    ++trace_number_;
  }

  StopKind stop_requested() const override { return stop_.load(); }
  /// Whatever MASTER_PORT says: a port chosen by whoever binds it is never taken.
  bool assigns_rendezvous() const override { return true; }
  Endpoint rendezvous(std::optional<Endpoint> mine) override;

  void leaving(int exit_code, std::string_view reason) override;

 private:
  using Clock = std::chrono::steady_clock;
  struct Leaving {
    int exit_code = 0;
    std::string reason;
    Clock::time_point until;
  };
  enum class Sent {
    kAll,
    kPassed,   // on a stream: what was sent will be acknowledged later
    kMore,     // there is more to send at once
    kUntaken,  // the controller heard it, but its store did not take all
    kFailed,
  };
  using Lock = std::unique_lock<std::mutex>;

  void run();
  /// One call, with the lock released meanwhile.
  Sent send(Lock& lock);
  Sent send_register(Lock& lock);
  /// On the stream, which it opens where there is none.
  Sent send_beat(Lock& lock);
  Sent beat_ended(Lock& lock, const GrpcOutbox::Batch& batch);
  void close_stream(Lock& lock);
  void answered(const muster::v1::BeatResponse& answer);
  /// Sends the heartbeat as a call, for a controller that knows no stream.
  void drop_refused();
  muster::v1::HeartbeatRequest heartbeat() const;
  void add_last_words(muster::v1::HeartbeatRequest& request) const;
  void add_program(muster::v1::HeartbeatRequest& request) const;
  void add_trace(muster::v1::HeartbeatRequest& request) const;
  /// Keeps reports that cannot be sent now, so that they are not lost with this process. False: the files stand still.
  bool keep_unsent();
  void end_files(Lock& lock, bool told_all);
  Clock::time_point leave_by() const {
    const bool offers = untaken_ && leaving_->exit_code == 0;
    return leaving_->until + (offers ? options_.offering_limit : std::chrono::milliseconds(0));
  }
  std::chrono::milliseconds call_limit() const;
  Sent failed(const grpc::Status& status);
  /// Why reports are lost, in one sentence.
  std::string loss() const;
  void heard(muster::v1::Directive directive, std::int64_t interval_ms);
  void follow(muster::v1::Directive directive);
  void wait_fenced(Lock& lock);
  [[noreturn]] void rendezvous_failed(const MeetingPatience& patience, const std::string& last_error) const;

  void say(const std::string& text) const { files_->say(text); }

  const GrpcReporterOptions options_;
  const Endpoint controller_;
  const muster::v1::RankKey key_;
  const int world_size_;
  std::unique_ptr<FileWriter> files_;
  std::unique_ptr<GrpcClient> client_;
  std::atomic<StopKind> stop_{StopKind::kNone};

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  GrpcOutbox outbox_;
  RankNews news_;
  std::uint64_t words_number_ = 0;  // counts the calls of program()
  std::uint64_t words_told_ = 0;    // the newest of them that the controller has got
  TraceReport trace_;
  std::uint64_t trace_number_ = 0, trace_told_ = 0;  // the same of trace()
  std::optional<TraceWish> trace_wish_;
  std::optional<Leaving> leaving_;
  bool told_loss_ = false;
  bool quit_ = false;
  bool untaken_ = false;  // the controller's store takes no reports now, and they are not known to be on disk
  bool done_ = false;     // the thread has sent the last words, or given up
  Clock::time_point fenced_at_{};

  // The newest answer on the stream.
  muster::v1::BeatResponse answer_;
  Clock::time_point answered_at_{}, acknowledged_at_{};

  std::unique_ptr<BeatStream> stream_;  // of the thread, and of the destructor after it
  grpc::Status ended_with_;             // the stream before
  bool registered_ = false;
  bool suspect_ = false;  // the controller called the last batch invalid: send one heartbeat without it
  bool away_ = false;
  Clock::time_point away_since_{};
  std::chrono::milliseconds interval_{500};
  Backoff backoff_{options_.backoff_first, options_.backoff_most};

  std::thread thread_;
};

}  // namespace agent::rank
