#include "rank/grpc_reporter.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <charconv>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <mutex>
#include <stdexcept>
#include <thread>
#include <utility>
#include <vector>

#include "contract/exit_codes.h"
#include "os/host_name.h"
#include "os/process_memory.h"
#include "os/signals_blocked.h"
#include "rank/errors.h"
#include "rank/grpc_client.h"
#include "rank/grpc_file_desk.h"
#include "rank/grpc_outbox.h"
#include "schema/utf8.h"

namespace worker {
namespace {

using std::chrono::milliseconds;
using Clock = std::chrono::steady_clock;
namespace v1 = muster::v1;

constexpr milliseconds kCallLimit{2'000};
/// The controller lets a rank wait two seconds at the rendezvous.
constexpr milliseconds kRendezvousCallLimit{5'000};
constexpr milliseconds kRendezvousPause{50};
constexpr milliseconds kOfferAgainAfter{500};
constexpr milliseconds kDefaultInterval{500};
constexpr milliseconds kLeastInterval{10};
constexpr milliseconds kMostInterval{60'000};
constexpr std::size_t kMaxReason = 2'000;

/// How long to wait after each failure, see GrpcReporterOptions.
class Backoff {
 public:
  explicit Backoff(const GrpcReporterOptions& options) : first_(options.backoff_first), most_(options.backoff_most) {}

  milliseconds next() {
    const auto now = wait_;
    wait_ = std::min(wait_ * 2, most_);
    return now;
  }
  void reset() { wait_ = first_; }

 private:
  milliseconds first_, most_;
  milliseconds wait_ = first_;
};

/// The reason as protobuf takes it. A message with one byte that is not UTF-8 would be refused for ever.
std::string fit_reason(std::string_view text) {
  auto reason = schema::valid_utf8(text);
  std::size_t end = std::min(reason.size(), kMaxReason);
  while (end < reason.size() && (static_cast<unsigned char>(reason[end]) & 0xC0) == 0x80) --end;
  reason.resize(end);
  return reason;
}

v1::Section wire(Section section) {
  switch (section) {
    case Section::kInit:
      return v1::SECTION_INIT;
    case Section::kData:
      return v1::SECTION_DATA;
    case Section::kStep:
      return v1::SECTION_STEP;
    case Section::kCheckpoint:
      return v1::SECTION_CHECKPOINT;
    case Section::kDone:
      return v1::SECTION_DONE;
  }
  return v1::SECTION_INIT;
}

v1::RankKey key_of(const RankEnvironment& environment) {
  v1::RankKey key;
  std::int64_t job = 0;
  const auto& text = environment.job_id;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), job);
  if (error != std::errc() || end != text.data() + text.size() || job <= 0) {
    throw std::invalid_argument("environment: MUSTER_JOB_ID=\"" + text +
                                "\" is not a job's number; unset MUSTER_CONTROLLER to run without a controller");
  }
  if (environment.attempt <= 0) {
    throw std::invalid_argument(
        "environment: MUSTER_ATTEMPT is not set; unset MUSTER_CONTROLLER to run without a controller");
  }
  key.set_job_id(job);
  key.set_attempt(static_cast<std::uint32_t>(environment.attempt));
  key.set_rank(static_cast<std::uint32_t>(environment.rank));
  return key;
}

Endpoint controller_of(const RankEnvironment& environment) {
  if (environment.controller) return *environment.controller;
  throw std::invalid_argument("environment: MUSTER_CONTROLLER is not set; set it to musterd's host:port");
}

std::string unsent_path(const RankEnvironment& environment) {
  if (environment.attempt_folder.empty()) return {};
  return environment.attempt_folder + "/unsent/rank-" + std::to_string(environment.rank);
}

class GrpcReporter final : public Reporter {
 public:
  GrpcReporter(const RankEnvironment& environment, GrpcReporterOptions options)
      : options_(options),
        controller_(controller_of(environment)),
        key_(key_of(environment)),
        world_size_(environment.world_size),
        outbox_(key_.rank()) {
    // gRPC starts its own threads with the channel.
    const os::SignalsBlocked blocked;
    files_ = std::make_unique<FileDesk>(unsent_path(environment), "[rank " + std::to_string(key_.rank()) + "] ");
    client_ = std::make_unique<GrpcClient>(controller_, environment.token);
    thread_ = std::thread([this] { run(); });
  }

  ~GrpcReporter() override {
    {
      std::lock_guard lock(mutex_);
      quit_ = true;
    }
    client_->cancel();
    wake_.notify_all();
    thread_.join();
  }

  void section(Section now) override {
    std::lock_guard lock(mutex_);
    section_ = now;
  }

  void declare(std::vector<schema::Series> series) override {
    std::lock_guard lock(mutex_);
    outbox_.declare(std::move(series));
  }

  void step(const StepReport& report) override {
    std::lock_guard lock(mutex_);
    step_ = report.step;
    step_ms_ = report.step_ms;
    outbox_.add(report);
    if (outbox_.lost() > 0 && !told_loss_) {
      told_loss_ = true;
      say("warning: the controller has been away for too long: the oldest metrics are being lost");
    }
  }

  void resumed_from(std::int64_t step) override {
    std::lock_guard lock(mutex_);
    resumed_from_ = step;
    step_ = step;
  }

  void checkpoint_saved(std::int64_t step, std::int64_t bytes, double ms) override {
    v1::CheckpointSaved saved;
    saved.set_step(step);
    saved.set_bytes(bytes);
    saved.set_took_ms(ms);
    using namespace std::chrono;
    saved.set_at_ms(duration_cast<milliseconds>(system_clock::now().time_since_epoch()).count());
    std::lock_guard lock(mutex_);
    outbox_.add(saved);
  }

  StopKind stop_requested() const override { return stop_.load(); }
  /// Whatever MASTER_PORT says: a port chosen by whoever binds it is never taken.
  bool assigns_rendezvous() const override { return true; }
  Endpoint rendezvous(std::optional<Endpoint> mine) override;

  void leaving(int exit_code, std::string_view reason) override {
    std::unique_lock lock(mutex_);
    if (leaving_) return;
    leaving_ = Leaving{exit_code, fit_reason(reason), Clock::now() + options_.leaving_limit};
    section_ = Section::kDone;
    wake_.notify_all();
    const auto over = [this] { return done_ || stop_ == StopKind::kNow; };
    while (!over() && Clock::now() < leave_by()) wake_.wait_until(lock, leave_by());
    if (!done_) client_->cancel();
  }

 private:
  struct Leaving {
    int exit_code = 0;
    std::string reason;
    Clock::time_point until;
  };
  enum class Sent {
    kAll,
    kMore,     // there is more to send at once
    kUntaken,  // the controller heard it, but its store did not take all
    kFailed,
  };
  using Lock = std::unique_lock<std::mutex>;

  void run();
  /// One call, with the lock released meanwhile.
  Sent send(Lock& lock);
  Sent send_register(Lock& lock);
  Sent send_heartbeat(Lock& lock);
  v1::HeartbeatRequest heartbeat() const;
  void add_last_words(v1::HeartbeatRequest& request) const;
  /// What cannot be sent now is not to be lost with this process. False: the files stand still.
  bool keep_unsent();
  void end_files(Lock& lock, bool told_all);
  Clock::time_point leave_by() const {
    const bool offers = untaken_ && leaving_->exit_code == 0;
    return leaving_->until + (offers ? options_.offering_limit : milliseconds(0));
  }
  milliseconds call_limit() const;
  Sent failed(const grpc::Status& status);
  void heard(v1::Directive directive, std::int64_t interval_ms);
  void follow(v1::Directive directive);
  void wait_fenced(Lock& lock);
  [[noreturn]] void rendezvous_failed(const MeetingPatience& patience, const std::string& last_error) const;

  void say(const std::string& text) const { files_->say(text); }

  const GrpcReporterOptions options_;
  const Endpoint controller_;
  const v1::RankKey key_;
  const int world_size_;
  std::unique_ptr<FileDesk> files_;
  std::unique_ptr<GrpcClient> client_;
  std::atomic<StopKind> stop_{StopKind::kNone};

  std::mutex mutex_;
  std::condition_variable wake_;
  GrpcOutbox outbox_;
  Section section_ = Section::kInit;
  std::int64_t step_ = 0;
  double step_ms_ = 0;
  std::optional<std::int64_t> resumed_from_;
  std::optional<Leaving> leaving_;
  bool told_loss_ = false;
  bool quit_ = false;
  bool untaken_ = false;  // the controller's store takes no reports now, and they are not known to be on disk
  bool done_ = false;     // the thread has sent the last words, or given up
  Clock::time_point fenced_at_{};

  // Of the thread alone.
  bool registered_ = false;
  bool suspect_ = false;  // the controller called the last batch invalid: send one heartbeat without it
  bool away_ = false;
  Clock::time_point away_since_{};
  milliseconds interval_ = kDefaultInterval;
  Backoff backoff_{options_};

  std::thread thread_;
};

// Sends, and touches no file: a heartbeat that waited for a disk would make this rank look lost.
void GrpcReporter::run() {
  Lock lock(mutex_);
  const auto must_look = [this] { return quit_ || stop_ == StopKind::kNow; };
  bool told_all = false;
  bool reserved = false;
  while (!must_look() && !(leaving_ && Clock::now() >= leave_by())) {
    const auto begin = Clock::now();
    const bool was_leaving = leaving_.has_value();
    const Sent sent = send(lock);
    if (!std::exchange(reserved, true)) files_->reserve();
    if (sent == Sent::kAll && outbox_.waiting() == 0) files_->drop();
    told_all = sent == Sent::kAll && was_leaving;
    if (told_all) break;
    if (sent == Sent::kMore || must_look()) continue;
    // What was given to the files a round ago is known now; what is given now, in the next.
    untaken_ = sent == Sent::kUntaken && !files_->holds_all();
    if (sent == Sent::kFailed || sent == Sent::kUntaken) keep_unsent();
    auto next = sent == Sent::kFailed ? Clock::now() + backoff_.next() : begin + interval_;
    if (leaving_) next = std::min(next, Clock::now() + kOfferAgainAfter);
    const bool begin_leaving = wake_.wait_until(lock, next, [&] { return must_look() || (leaving_ && !was_leaving); });
    // Little time is left: an outage's long waits would use it up.
    if (begin_leaving) backoff_.reset();
  }
  if (stop_ == StopKind::kNow) wait_fenced(lock);
  end_files(lock, told_all);
  done_ = true;
  wake_.notify_all();
}

// The last work on files. It is waited for as long as that may help: until the process would be killed, or with exit
// code 0, when nobody waits to kill it, as long as reports are offered.
void GrpcReporter::end_files(Lock& lock, bool told_all) {
  const bool keep = leaving_ && !told_all && stop_ != StopKind::kNow;
  auto until = Clock::now() + options_.file_limit;
  if (keep && leaving_->exit_code == 0) until = std::max(until, leaving_->until + options_.offering_limit);
  const auto wait = [&] {
    lock.unlock();
    const bool done = files_->wait(until);
    lock.lock();
    return done;
  };
  if (keep && wait()) keep_unsent();
  if (!wait()) {
    if (keep) say("what the controller has not heard is lost if this rank's disk does not go on before it ends");
    return;
  }
  if (told_all || files_->holds_nothing()) files_->remove();
  wait();
}

GrpcReporter::Sent GrpcReporter::send(Lock& lock) {
  return registered_ ? send_heartbeat(lock) : send_register(lock);
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
  request.set_pid(::getpid());
  request.set_node(os::node_name());
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
  request.set_step(step_);
  request.set_section(wire(section_));
  const auto memory = os::process_memory();
  request.set_memory_bytes(memory.resident_bytes);
  request.set_memory_peak_bytes(memory.peak_bytes);
  request.set_step_ms(step_ms_);
  if (resumed_from_) request.set_resumed_from_step(*resumed_from_);
  return request;
}

void GrpcReporter::add_last_words(v1::HeartbeatRequest& request) const {
  request.set_leaving(true);
  request.set_exit_code(leaving_->exit_code);
  request.set_leaving_reason(leaving_->reason);
}

GrpcReporter::Sent GrpcReporter::send_heartbeat(Lock& lock) {
  auto request = heartbeat();
  const bool probing = suspect_;
  GrpcOutbox::Batch batch;
  if (!probing) batch = outbox_.fill(request);
  const bool last = leaving_ && !probing && outbox_.fits_one_batch();
  if (last) add_last_words(request);
  v1::HeartbeatResponse response;
  const auto limit = call_limit();
  lock.unlock();
  const auto status = client_->call(request, response, limit);
  lock.lock();
  if (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT && !batch.empty()) suspect_ = true;
  if (!status.ok()) return failed(status);

  heard(response.directive(), response.heartbeat_interval_ms());
  if (probing) {
    suspect_ = false;
    v1::HeartbeatRequest refused;
    const auto culprit = outbox_.fill(refused);
    outbox_.acknowledge(culprit, culprit.steps, culprit.checkpoints);
    say("warning: the controller refuses " + std::to_string(culprit.steps) + " metrics as invalid; they are lost");
    return Sent::kMore;
  }
  const bool whole = response.metrics_accepted() >= batch.steps && response.checkpoints_accepted() >= batch.checkpoints;
  outbox_.acknowledge(batch, response.metrics_accepted(), response.checkpoints_accepted());
  if (!whole) return Sent::kUntaken;
  return batch.full || (leaving_ && !last) ? Sent::kMore : Sent::kAll;
}

GrpcReporter::Sent GrpcReporter::failed(const grpc::Status& status) {
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
  if (directive == v1::DIRECTIVE_STOP && stop_ != StopKind::kNow) {
    fenced_at_ = Clock::now();
    stop_ = StopKind::kNow;
    say("the controller says that this attempt is over: leaving at once");
    wake_.notify_all();
  } else if (directive == v1::DIRECTIVE_SAVE_AND_LEAVE && stop_ == StopKind::kNone) {
    stop_ = StopKind::kSave;
  }
}

void GrpcReporter::wait_fenced(Lock& lock) {
  // Nobody wants to hear of a fenced rank, so whoever waits in leaving() goes on at once.
  wake_.notify_all();
  while (!quit_) {
    const auto until =
        leaving_ ? std::max(fenced_at_ + options_.fenced_grace, leaving_->until) : fenced_at_ + options_.fenced_grace;
    if (Clock::now() >= until) {
      say("fenced, and stuck: ending this process (exit code " + std::to_string(contract::kExitFenced) + ")");
      files_->wait(Clock::now() + FileDesk::kLastWait);
      ::_exit(contract::kExitFenced);
    }
    wake_.wait_until(lock, until);
  }
}

Endpoint GrpcReporter::rendezvous(std::optional<Endpoint> mine) {
  v1::RendezvousRequest request;
  *request.mutable_key() = key_;
  if (mine) request.set_endpoint(to_string(*mine));
  MeetingPatience patience(options_.rendezvous_limit, options_.rendezvous_away_limit, Clock::now());
  Backoff backoff(options_);
  std::string last_error;
  while (true) {
    const auto left = patience.left(Clock::now());
    if (left == milliseconds(0)) rendezvous_failed(patience, last_error);
    v1::RendezvousResponse response;
    const auto limit = std::min(left, kRendezvousCallLimit);
    const auto status = client_->call(request, response, limit);
    Lock lock(mutex_);
    if (status.ok()) follow(response.directive());
    if (stop_ == StopKind::kNow) throw FencedError("this attempt is over: the controller has told it to stop");
    if (stop_ == StopKind::kSave) throw std::runtime_error("asked to leave before the ranks had met: nothing to save");
    if (status.ok() && !response.endpoint().empty()) return parse_endpoint(response.endpoint());
    if (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT) {
      throw std::runtime_error("rendezvous: the controller refuses: " + status.error_message());
    }
    // The last call is cut short by our own limit, which says nothing of the controller.
    const bool cut = status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED && limit < kRendezvousCallLimit;
    if (!cut) {
      last_error = status.error_message();
      patience.heard(status.ok(), Clock::now());
    }
    const auto pause = status.ok() ? kRendezvousPause : backoff.next();
    wake_.wait_for(lock, std::min(pause, left), [this] { return stop_ != StopKind::kNone; });
  }
}

void GrpcReporter::rendezvous_failed(const MeetingPatience& patience, const std::string& last_error) const {
  const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience.limit()).count();
  std::string text = "rendezvous: rank " + std::to_string(key_.rank()) + " waited " + std::to_string(seconds) + " s";
  if (!patience.controller_is_away()) {
    text += " but rank 0 has not said where it listens; look into rank 0's log";
  } else {
    text += " for the controller at " + to_string(controller_) + " (" + last_error +
            "); check that musterd runs and can be reached from " + os::node_name();
  }
  throw std::runtime_error(text);
}

}  // namespace

std::unique_ptr<Reporter> make_grpc_reporter(const RankEnvironment& environment, GrpcReporterOptions options) {
  return std::make_unique<GrpcReporter>(environment, options);
}

}  // namespace worker
