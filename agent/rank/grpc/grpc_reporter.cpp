#include "agent/rank/grpc/grpc_reporter.h"

#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "agent/rank/grpc/grpc_reporter_thread.h"
#include "agent/rank/reporter.h"
#include "base/host_name.h"
#include "base/signals_blocked.h"
#include "spec/exit_codes.h"

namespace agent::rank {
namespace {

using std::chrono::milliseconds;
namespace v1 = muster::v1;

/// The controller lets a rank wait two seconds at the rendezvous.
constexpr milliseconds kRendezvousCallLimit{5'000};
constexpr milliseconds kRendezvousPause{50};
constexpr milliseconds kOfferAgainAfter{500};

std::string unsent_path(const RankEnvironment& environment) {
  if (environment.attempt_folder.empty()) return {};
  return environment.attempt_folder + "/unsent/rank-" + std::to_string(environment.rank);
}

}  // namespace

GrpcReporter::GrpcReporter(const RankEnvironment& environment, GrpcReporterOptions options)
    : options_(options),
      controller_(controller_of(environment)),
      key_(key_of(environment)),
      world_size_(environment.world_size),
      outbox_(key_.rank()) {
  // gRPC starts its own threads with the channel.
  const base::SignalsBlocked blocked;
  files_ = std::make_unique<FileWriter>(unsent_path(environment), "[rank " + std::to_string(key_.rank()) + "] ");
  client_ = std::make_unique<GrpcClient>(controller_, environment.token);
  thread_ = std::thread([this] { run(); });
}

GrpcReporter::~GrpcReporter() {
  {
    std::lock_guard lock(mutex_);
    quit_ = true;
  }
  client_->cancel();
  wake_.notify_all();
  thread_.join();
  stream_.reset();
}

// While other work on the files is under way they take nothing, so it is asked again after that.
void GrpcReporter::keep() {
  const auto until = Clock::now() + options_.keep_limit;
  for (bool taken = false; !taken && Clock::now() < until; files_->wait(until)) {
    std::lock_guard lock(mutex_);
    taken = outbox_.waiting() == 0 || keep_unsent();
  }
}

void GrpcReporter::leaving(int exit_code, std::string_view reason) {
  std::unique_lock lock(mutex_);
  if (leaving_) return;
  leaving_ = Leaving{exit_code, fit_reason(reason), Clock::now() + options_.leaving_limit};
  news_.section = Section::kDone;
  wake_.notify_all();
  const auto over = [this] { return done_ || stop_ == StopKind::kNow; };
  while (!over() && Clock::now() < leave_by()) wake_.wait_until(lock, leave_by());
  if (!done_) client_->cancel();
}

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
    if (sent == Sent::kAll) files_->drop_if_told(outbox_);
    told_all = sent == Sent::kAll && was_leaving;
    if (told_all) break;
    if (sent == Sent::kMore || must_look()) continue;
    // The fate of what the files got a round ago is known now; the fate of what they get now, in the next round.
    untaken_ = sent == Sent::kUntaken && !files_->holds_all();
    if (sent == Sent::kFailed || sent == Sent::kUntaken) keep_unsent();
    auto next = sent == Sent::kFailed ? Clock::now() + backoff_.next() : begin + interval_;
    if (leaving_) next = std::min(next, Clock::now() + kOfferAgainAfter);
    const auto broken = [&] { return sent != Sent::kFailed && stream_ && stream_->end(); };
    wake_.wait_until(lock, next, [&] { return must_look() || (leaving_ && !was_leaving) || broken(); });
    const bool begin_leaving = leaving_ && !was_leaving;
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

void GrpcReporter::wait_fenced(Lock& lock) {
  // Nobody wants to hear of a fenced rank, so whoever waits in leaving() goes on at once.
  wake_.notify_all();
  while (!quit_) {
    const auto until =
        leaving_ ? std::max(fenced_at_ + options_.fenced_grace, leaving_->until) : fenced_at_ + options_.fenced_grace;
    if (Clock::now() >= until) {
      say("fenced, and stuck: ending this process (exit code " + std::to_string(spec::kExitFenced) + ")");
      files_->wait(Clock::now() + FileWriter::kLastWait);
      ::_exit(spec::kExitFenced);
    }
    wake_.wait_until(lock, until);
  }
}

Endpoint GrpcReporter::rendezvous(std::optional<Endpoint> mine) {
  v1::RendezvousRequest request;
  *request.mutable_key() = key_;
  if (mine) request.set_endpoint(to_string(*mine));
  MeetingPatience patience(options_.rendezvous_limit, options_.rendezvous_away_limit, Clock::now());
  Backoff backoff(options_.backoff_first, options_.backoff_most);
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
            "); check that musterd runs and can be reached from " + base::node_name();
  }
  throw std::runtime_error(text);
}

std::unique_ptr<Reporter> make_grpc_reporter(const RankEnvironment& environment, GrpcReporterOptions options) {
  return std::make_unique<GrpcReporter>(environment, options);
}

}  // namespace agent::rank
