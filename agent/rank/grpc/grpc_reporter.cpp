#include "agent/rank/grpc/grpc_reporter.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <mutex>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <utility>
#include <vector>

#include "agent/rank/grpc/grpc_client.h"
#include "agent/rank/grpc/grpc_outbox.h"
#include "agent/rank/grpc/grpc_unsent_file.h"
#include "base/host_name.h"
#include "base/process_table.h"
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
constexpr milliseconds kCallLimit{2'000};
constexpr milliseconds kLeastInterval{10};
constexpr milliseconds kMostInterval{60'000};
/// The controller answers a stream every five seconds at the least.
constexpr milliseconds kUnansweredLimit{15'000};
/// Rows of a stream are durable and acknowledged by then.
constexpr milliseconds kUntakenAfter{8'000};

std::string unsent_path(const RankEnvironment& environment) {
  if (environment.attempt_folder.empty()) return {};
  return environment.attempt_folder + "/unsent/rank-" + std::to_string(environment.rank);
}

/// The reporter of make_grpc_reporter().
class GrpcReporter final : public Reporter {
 public:
  GrpcReporter(const RankEnvironment& environment, GrpcReporterOptions options)
      : options_(options), key_(key_of(environment)), world_size_(environment.world_size), outbox_(key_.rank()) {
    // gRPC starts its own threads with the channel.
    const base::SignalsBlocked blocked;
    files_ = std::make_unique<FileWriter>(unsent_path(environment), "[rank " + std::to_string(key_.rank()) + "] ");
    client_ = std::make_unique<GrpcClient>(controller_of(environment), environment.token);
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
    stream_.reset();
  }

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

  /// While other work on the files is under way they take nothing, so it is asked again after that.
  void keep() override {
    const auto until = Clock::now() + options_.keep_limit;
    for (bool taken = false; !taken && Clock::now() < until; files_->wait(until)) {
      std::lock_guard lock(mutex_);
      taken = outbox_.waiting() == 0 || keep_unsent();
    }
  }

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
  Endpoint rendezvous(std::optional<Endpoint> mine) override {
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
      const auto status = client_->call(&GrpcClient::Stub::Rendezvous, request, response, limit);
      Lock lock(mutex_);
      if (status.ok()) follow(response.directive());
      if (stop_ == StopKind::kNow) throw FencedError("this attempt is over: the controller has told it to stop");
      if (stop_ == StopKind::kSave)
        throw std::runtime_error("asked to leave before the ranks had met: nothing to save");
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

  void leaving(int exit_code, std::string_view reason) override {
    std::unique_lock lock(mutex_);
    if (leaving_) return;
    leaving_ = Leaving{exit_code, fit_reason(reason), Clock::now() + options_.leaving_limit};
    news_.section = Section::kDone;
    wake_.notify_all();
    const auto over = [this] { return done_ || stop_ == StopKind::kNow; };
    while (!over() && Clock::now() < leave_by()) wake_.wait_until(lock, leave_by());
    if (!done_) client_->cancel();
  }

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

  /// Sends, and touches no file: a heartbeat that waited for a disk would make this rank look lost.
  void run() {
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

  /// One call, with the lock released meanwhile.
  Sent send(Lock& lock) { return registered_ ? send_beat(lock) : send_register(lock); }

  Sent send_register(Lock& lock) {
    v1::RegisterRequest request;
    *request.mutable_key() = key_;
    request.set_world_size(static_cast<std::uint32_t>(world_size_));
    request.set_pid(options_.pid != 0 ? options_.pid : ::getpid());
    request.set_node(base::node_name());
    v1::RegisterResponse response;
    const auto limit = call_limit();
    lock.unlock();
    const auto status = client_->call(&GrpcClient::Stub::Register, request, response, limit);
    lock.lock();
    if (!status.ok()) return failed(status);
    registered_ = true;
    heard(response.directive(), response.heartbeat_interval_ms());
    return Sent::kMore;
  }

  /// On the stream, which it opens where there is none.
  /// The controller answers at once only what it is asked to. What is asked for is waited for.
  Sent send_beat(Lock& lock) {
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

  /// The stream's thread may be about to tell an answer, so the lock is released meanwhile.
  Sent beat_ended(Lock& lock, const GrpcOutbox::Batch& batch) {
    lock.unlock();
    auto status = stream_->end().value_or(grpc::Status(grpc::StatusCode::DEADLINE_EXCEEDED, "no answer"));
    if (status.ok()) status = grpc::Status(grpc::StatusCode::UNAVAILABLE, "the stream was closed");
    stream_.reset();
    lock.lock();
    answer_.Clear();
    if (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT && !batch.empty()) suspect_ = true;
    return failed(status);
  }

  /// The stream's own thread.
  void answered(const v1::BeatResponse& answer) {
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

  /// Drops the reports that the controller called invalid, once it took a heartbeat without them.
  void drop_refused() {
    suspect_ = false;
    v1::HeartbeatRequest refused;
    const auto culprit = outbox_.fill(refused);
    outbox_.acknowledge(culprit, culprit.steps, culprit.checkpoints);
    say("warning: the controller refuses " + std::to_string(culprit.steps) + " metrics as invalid; they are lost");
  }

  v1::HeartbeatRequest heartbeat() const {
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

  void add_last_words(v1::HeartbeatRequest& request) const {
    add_program(request);
    request.set_leaving(true);
    // muster-worker says so before it leaves, and ranks are put in order by that. Of another process it would come
    // late.
    if (!options_.for_another) request.set_exit_code(leaving_->exit_code);
    request.set_leaving_reason(leaving_->reason);
  }

  void add_program(v1::HeartbeatRequest& request) const {
    if (words_number_ > 0) *request.mutable_program() = wire(news_.words);
  }

  /// Traces of another process are not recorded, and nothing is said of them.
  void add_trace(v1::HeartbeatRequest& request) const {
    if (!options_.for_another) *request.mutable_trace() = wire(trace_);
  }

  /// Keeps reports that cannot be sent now, so that they are not lost with this process. False: the files stand still.
  bool keep_unsent() {
    auto news = heartbeat();
    if (leaving_) add_last_words(news);
    return files_->keep(outbox_, news);
  }

  /// The last work on files. It is waited for as long as that may help: until the process would be killed, or with exit
  /// code 0, when nobody waits to kill it, as long as reports are offered.
  void end_files(Lock& lock, bool told_all) {
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

  Clock::time_point leave_by() const {
    const bool offers = untaken_ && leaving_->exit_code == 0;
    return leaving_->until + (offers ? options_.offering_limit : std::chrono::milliseconds(0));
  }
  std::chrono::milliseconds call_limit() const {
    if (!leaving_) return kCallLimit;
    const auto left = std::chrono::duration_cast<milliseconds>(leave_by() - Clock::now());
    return std::clamp(left, milliseconds(1), kCallLimit);
  }

  Sent failed(const grpc::Status& status) {
    words_told_ = 0;  // a controller that was started anew knows nothing of them
    // It has lost its store, or been given an older one; a controller that learns of this rank again may keep it.
    if (status.error_code() == grpc::StatusCode::NOT_FOUND) registered_ = false;
    if (!away_ && !quit_) {
      away_ = true;
      away_since_ = Clock::now();
      say("warning: the controller at " + to_string(client_->controller()) + " does not take reports (" +
          status.error_message() + "); training goes on and metrics are kept");
    }
    return Sent::kFailed;
  }

  /// Why reports are lost, in one sentence.
  std::string loss() const {
    const auto* const why = away_      ? "which does not take reports now"
                            : untaken_ ? "whose store takes nothing now"
                                       : "which takes them more slowly than they come";
    return "warning: the oldest metrics are being lost: " + std::to_string(outbox_.waiting()) +
           " reports wait for the controller, " + why;
  }

  void heard(v1::Directive directive, std::int64_t interval_ms) {
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

  void follow(v1::Directive directive) {
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

  void wait_fenced(Lock& lock) {
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

  [[noreturn]] void rendezvous_failed(const MeetingPatience& patience, const std::string& last_error) const {
    const auto seconds = std::chrono::duration_cast<std::chrono::seconds>(patience.limit()).count();
    std::string text = "rendezvous: rank " + std::to_string(key_.rank()) + " waited " + std::to_string(seconds) + " s";
    if (!patience.controller_is_away()) {
      text += " but rank 0 has not said where it listens; look into rank 0's log";
    } else {
      text += " for the controller at " + to_string(client_->controller()) + " (" + last_error +
              "); check that musterd runs and can be reached from " + base::node_name();
    }
    throw std::runtime_error(text);
  }

  void say(const std::string& text) const { files_->say(text); }

  const GrpcReporterOptions options_;
  const v1::RankKey key_;
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
  v1::BeatResponse answer_;
  Clock::time_point answered_at_{}, acknowledged_at_{};

  std::unique_ptr<BeatStream> stream_;  // of the thread, and of the destructor after it
  bool registered_ = false;
  bool suspect_ = false;  // the controller called the last batch invalid: send one heartbeat without it
  bool away_ = false;
  Clock::time_point away_since_{};
  std::chrono::milliseconds interval_{500};
  Backoff backoff_{options_.backoff_first, options_.backoff_most};

  std::thread thread_;
};

}  // namespace

std::unique_ptr<Reporter> make_grpc_reporter(const RankEnvironment& environment, GrpcReporterOptions options) {
  return std::make_unique<GrpcReporter>(environment, options);
}

}  // namespace agent::rank
