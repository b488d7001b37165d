#include <atomic>
#include <boost/asio/steady_timer.hpp>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "controller/rpc/rpc_server.h"
#include "controller/rpc/services.h"
#include "muster/v1/rank_service.grpc.pb.h"

namespace rpc {
namespace {

namespace v1 = muster::v1;

constexpr int kMeetingThreads = 8;
/// How long a rank waits for one answer at the rendezvous. After a time-out the rank asks again.
constexpr core::Millis kPatience{2000};

/// The place of one open call on its connection, until the end of this object. Of a connection that nobody watches,
/// there is no bound. Thread-safe.
class CallPlace {
 public:
  CallPlace(ReadGuard& guard, const grpc::CallbackServerContext& context)
      : guard_(guard), connection_(guard.find(context.peer())), is_there_(!connection_ || connection_->begin_call()) {
    if (!is_there_) guard_.close(connection_, "too many open calls");
  }
  ~CallPlace() {
    if (connection_) connection_->end_call();
  }
  CallPlace(const CallPlace&) = delete;
  CallPlace& operator=(const CallPlace&) = delete;

  /// False: the connection has too many, and was closed.
  bool is_there() const { return is_there_; }
  /// Notes the controller's answer to the call. A store that takes nothing now is no fault of the caller.
  void heard(const grpc::Status& said) const {
    const bool is_accepted = said.ok() || said.error_code() == grpc::StatusCode::UNAVAILABLE;
    if (connection_ && is_accepted) guard_.heard(connection_);
  }
  static grpc::Status refused() {
    return failure(grpc::StatusCode::RESOURCE_EXHAUSTED, "too many calls are open on this connection");
  }

 private:
  ReadGuard& guard_;
  const std::shared_ptr<Watched> connection_;
  const bool is_there_;
};

/// All streams of one kind that are open, and what they share. A rank has one: a newer one, which has shown the token,
/// ends the older one. Thread-safe.
template <typename Request, typename Response>
class ReportStreams {
 public:
  /// Opens the controller's end of a stream.
  using Open = std::function<common::Outcome<std::shared_ptr<ranks::StreamOf<Request>>>(
      const muster::v1::RankKey& key, const std::string& token, ranks::Tell<Response> tell)>;

  ReportStreams(Open open, const Callers& callers, ReadGuard& guard, Pool& pool)
      : open_taker_(std::move(open)), callers_(callers), guard_(guard), pool_(pool) {}

  grpc::ServerBidiReactor<Request, Response>* open(const grpc::CallbackServerContext& context) {
    const auto stream = std::make_shared<Stream>(*this, context);
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

  /// Ends all, and every later one at once.
  void stop() {
    std::vector<std::shared_ptr<Stream>> open;
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
      open.assign(open_.begin(), open_.end());
    }
    for (const auto& stream : open) stream->end(leaving());
  }

 private:
  using Rank = std::tuple<std::int64_t, std::uint32_t, std::uint32_t>;  // job, attempt, rank
  static Rank rank_of(const muster::v1::RankKey& key) { return {key.job_id(), key.attempt(), key.rank()}; }

  /// The stream of one rank, or of the task beside it, from its opening to its end.
  ///
  /// States: kFirst -> kOpening -> kReading -> kEnding. The thread that reads a request notes it: no other thread takes
  /// part, unless something must be written. Opening and writing go through the pool. One answer is under way at a
  /// time; of the others only the newest waits.
  class Stream final : public grpc::ServerBidiReactor<Request, Response>, public std::enable_shared_from_this<Stream> {
   public:
    Stream(ReportStreams& streams, const grpc::CallbackServerContext& context)
        : streams_(streams), context_(context), place_(streams.guard_, context) {}

    /// `self` keeps this alive until gRPC is done with it.
    void begin(std::shared_ptr<Stream> self) {
      self_ = std::move(self);
      if (!place_.is_there()) return end(CallPlace::refused());
      this->StartRead(&request_);
    }
    /// Ends the stream; again is a no-op.
    void end(grpc::Status status) {
      std::unique_lock lock(mutex_);
      if (!ending_) ending_ = std::move(status);
      finish(lock);
    }

    /// Ends the stream for a newer one of its rank, also if the client takes no answers: an answer that is under way is
    /// not waited for.
    void make_way() {
      std::unique_lock lock(mutex_);
      if (!ending_) ending_ = replaced();
      // gRPC is not done with the call before the answer is, so the context is there.
      if (is_writing_) context_.TryCancel();
      finish(lock);
    }

    // A thread that reads from all ranks.
    void OnReadDone(bool ok) override {
      if (!ok) return end(grpc::Status::OK);
      if (taker_ != nullptr) return take();
      if (auto status = check_key(request_.has_key(), request_.key()); !status.ok()) return end(std::move(status));
      if (streams_.callers_.note_rank(context_, {request_.key().job_id(), request_.key().attempt()})) {
        // Before it is opened: those that wait for that are bounded, too.
        rank_ = rank_of(request_.key());
        if (const auto older = streams_.put(*rank_, this->shared_from_this())) older->make_way();
      }
      // The context is gone when stop() ends this stream while it opens.
      if (!streams_.pool_.post(
              [self = this->shared_from_this(), token = bearer_token(context_)] { self->open(token); })) {
        end(busy());
      }
    }
    void OnWriteDone(bool ok) override {
      std::unique_lock lock(mutex_);
      is_writing_ = false;
      if (!ok && !ending_) ending_ = grpc::Status::CANCELLED;
      if (ending_) return finish(lock);
      if (next_) write(*std::exchange(next_, std::nullopt));
    }
    void OnDone() override {
      const auto self = std::move(self_);
      if (taker_) taker_->close();
      const std::lock_guard lock(streams_.mutex_);
      streams_.open_.erase(self);
      if (!rank_) return;
      const auto newest = streams_.of_rank_.find(*rank_);
      if (newest != streams_.of_rank_.end() && newest->second == self) streams_.of_rank_.erase(newest);
    }

   private:
    // A thread that may wait. Nothing is read meanwhile.
    void open(const std::string& token) {
      {
        const std::lock_guard lock(mutex_);
        if (ending_) return;  // a newer one has replaced it meanwhile
      }
      std::shared_ptr<ranks::StreamOf<Request>> taker;
      const auto status = guarded([&] {
        return answer(streams_.open_taker_(request_.key(), token, [this](const Response& answer) { tell(answer); }),
                      &taker);
      });
      place_.heard(status);
      if (!status.ok()) return end(status);
      {
        const std::lock_guard lock(mutex_);
        if (!ending_) taker_ = taker;
      }
      if (taker_ == nullptr) return taker->close();
      take();
    }
    void take() {
      if (auto status = check(request_); !status.ok()) return end(std::move(status));
      const auto must_write = taker_->beat(request_);
      if (!must_write.ok()) return end(failure(must_write.refusal()));
      // If the pool is full, the next request asks again.
      if (must_write.value()) (void)streams_.pool_.post([taker = taker_] { taker->work(); });
      const std::lock_guard lock(mutex_);
      // After the end nothing may begin.
      if (!ending_) this->StartRead(&request_);
    }
    void tell(const Response& answer) {
      const std::lock_guard lock(mutex_);
      if (ending_) return;
      if (is_writing_) {
        next_ = answer;
      } else {
        write(answer);
      }
    }
    // The callers of these two hold the lock.
    void write(const Response& answer) {
      is_writing_ = true;
      writing_ = answer;
      this->StartWrite(&writing_);
    }
    void finish(std::unique_lock<std::mutex>& lock) {
      if (is_writing_ || std::exchange(is_finished_, true)) return;
      lock.unlock();
      this->Finish(*ending_);
    }

    ReportStreams& streams_;
    const grpc::CallbackServerContext& context_;
    const CallPlace place_;
    std::shared_ptr<Stream> self_;
    std::shared_ptr<ranks::StreamOf<Request>> taker_;  // of the reading thread, once it is open
    Request request_;
    std::optional<Rank> rank_;  // once its first request has shown the token

    std::mutex mutex_;
    bool is_writing_ = false;
    bool is_finished_ = false;
    Response writing_;
    std::optional<Response> next_;
    std::optional<grpc::Status> ending_;
  };

  /// Notes the newest stream of a rank. Returns the one before; null: there is none.
  std::shared_ptr<Stream> put(const Rank& rank, std::shared_ptr<Stream> stream) {
    const std::lock_guard lock(mutex_);
    if (!open_.contains(stream)) return nullptr;  // it has ended meanwhile
    return std::exchange(of_rank_[rank], std::move(stream));
  }
  static grpc::Status replaced() {
    return failure(grpc::StatusCode::ABORTED, "the rank has opened another stream, which replaces this one");
  }
  static grpc::Status leaving() {
    return failure(grpc::StatusCode::UNAVAILABLE, "musterd is leaving; open the stream again when it is back");
  }

  const Open open_taker_;
  const Callers& callers_;
  ReadGuard& guard_;
  Pool& pool_;
  std::mutex mutex_;
  std::set<std::shared_ptr<Stream>> open_;
  std::map<Rank, std::shared_ptr<Stream>> of_rank_;
  bool stopping_ = false;
};

/// One call that is answered once. It keeps its place until the client has been told.
class Answer final : public grpc::ServerUnaryReactor {
 public:
  Answer(ReadGuard& guard, const grpc::CallbackServerContext& context) : place_(guard, context) {}
  const CallPlace& place() const { return place_; }
  /// `tell` is called once the client is gone. Call it before the reactor is returned to gRPC.
  void on_cancel(std::function<void()> tell) { on_cancel_ = std::move(tell); }
  bool is_cancelled() const { return is_cancelled_; }
  void OnCancel() override {
    is_cancelled_ = true;
    if (on_cancel_) on_cancel_();
  }
  void OnDone() override { delete this; }

 private:
  const CallPlace place_;
  std::function<void()> on_cancel_;
  std::atomic<bool> is_cancelled_{false};
};

/// The memory that a request takes. A heartbeat has many small parts.
std::size_t cost_of(const v1::HeartbeatRequest& request) {
  return 4 * request.ByteSizeLong();
}
template <typename Request>
std::size_t cost_of(const Request& request) {
  return request.ByteSizeLong();
}

/// The memory of requests that wait for a thread. Thread-safe.
class QueuedBytes {
 public:
  static constexpr std::size_t kMost = std::size_t{128} << 20;
  /// An attempt that has nothing in the queue may add a request of any size.
  static constexpr std::size_t kMostOfAttempt = std::size_t{16} << 20;

  bool enter(const core::AttemptKey& attempt, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    const auto found = of_attempt_.find(attempt);
    const auto its = found == of_attempt_.end() ? 0 : found->second;
    if ((its > 0 && its + bytes > kMostOfAttempt) || (all_ > 0 && all_ + bytes > kMost)) return false;
    all_ += bytes;
    of_attempt_[attempt] = its + bytes;
    return true;
  }
  void leave(const core::AttemptKey& attempt, std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    all_ -= bytes;
    const auto found = of_attempt_.find(attempt);
    if ((found->second -= bytes) == 0) of_attempt_.erase(found);
  }

 private:
  std::mutex mutex_;
  std::size_t all_ = 0;
  std::map<core::AttemptKey, std::size_t> of_attempt_;
};

/// One rank at the rendezvous, from its call to its answer.
struct Meeting {
  Answer* reactor = nullptr;
  const v1::RendezvousRequest* request = nullptr;
  v1::RendezvousResponse* response = nullptr;
  std::string token;
  boost::asio::steady_timer patience;
  core::AttemptKey attempt() const { return {request->key().job_id(), request->key().attempt()}; }
};

/// Lets ranks wait for rank 0's address without holding a thread each. Thread-safe.
class RendezvousWaiters {
 public:
  /// The number of announcements so far. Read it before asking the controller and give it to wait(), so that an address
  /// that arrives in between is not missed.
  std::uint64_t news() const {
    const std::lock_guard lock(mutex_);
    return news_;
  }

  enum class Waiting { kYes, kNewsSince, kFull };
  /// If the answer is kYes, `then` is called later, from a thread of the timer's: with true when rank 0 has reported
  /// its address, with false when the meeting's patience is over.
  Waiting wait(const std::shared_ptr<Meeting>& meeting, std::uint64_t news_seen, std::function<void(bool)> then) {
    const std::lock_guard lock(mutex_);
    if (news_ != news_seen) return Waiting::kNewsSince;
    if (waiting_.size() >= kMaxRankCalls) return Waiting::kFull;
    if (closed_) meeting->patience.expires_after(core::Millis(0));
    const auto place = waiting_.emplace(meeting->attempt(), &meeting->patience);
    meeting->patience.async_wait([this, place, then = std::move(then)](const boost::system::error_code& cancelled) {
      const bool is_open = leave(place);
      then(cancelled && is_open);
    });
    return Waiting::kYes;
  }
  /// Rank 0 of `attempt` has reported its address.
  void announce(const core::AttemptKey& attempt) {
    const std::lock_guard lock(mutex_);
    ++news_;
    const auto [begin, end] = waiting_.equal_range(attempt);
    for (auto at = begin; at != end; ++at) at->second->cancel();
  }
  /// The patience of this meeting is over, if it waits.
  void give_up(Meeting& meeting) {
    const std::lock_guard lock(mutex_);
    meeting.patience.cancel();
  }
  /// Every patience is over, now and later.
  void close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    for (const auto& [attempt, patience] : waiting_) patience->cancel();
  }

 private:
  using Waiters = std::multimap<core::AttemptKey, boost::asio::steady_timer*>;
  /// False after close().
  bool leave(Waiters::const_iterator place) {
    const std::lock_guard lock(mutex_);
    waiting_.erase(place);
    return !closed_;
  }

  mutable std::mutex mutex_;
  std::uint64_t news_ = 0;
  Waiters waiting_;
  bool closed_ = false;
};

/// See make_rank_service().
class RankCalls final : public v1::RankService::CallbackService {
 public:
  RankCalls(service::Controller& controller, const Callers& callers, ReadGuard& guard, ReadingProbe* probe)
      : controller_(controller),
        callers_(callers),
        guard_(guard),
        probe_(probe),
        beats_(std::bind_front(&service::Controller::open_stream, &controller), callers, guard, pool_),
        tasks_(std::bind_front(&service::Controller::open_task_stream, &controller), callers, guard, pool_) {
    // The first timer opens the pool's descriptors, which throws when there are none left. A call must not find that.
    const boost::asio::steady_timer first(meetings_.executor());
  }
  ~RankCalls() override { stop(); }

  void stop() {
    waiters_.close();
    beats_.stop();
    tasks_.stop();
  }

  grpc::ServerUnaryReactor* Register(grpc::CallbackServerContext* context, const v1::RegisterRequest* request,
                                     v1::RegisterResponse* response) override {
    return run(context, request, response, &service::Controller::register_rank);
  }
  grpc::ServerUnaryReactor* Heartbeat(grpc::CallbackServerContext* context, const v1::HeartbeatRequest* request,
                                      v1::HeartbeatResponse* response) override {
    if (probe_ == nullptr || !probe_->took(*context, *request)) {
      return run(context, request, response, &service::Controller::heartbeat);
    }
    auto* reactor = context->DefaultReactor();
    reactor->Finish(grpc::Status::OK);
    return reactor;
  }
  grpc::ServerUnaryReactor* Task(grpc::CallbackServerContext* context, const v1::TaskRequest* request,
                                 v1::TaskResponse* response) override {
    return run(context, request, response, &service::Controller::task);
  }
  grpc::ServerUnaryReactor* KeepStack(grpc::CallbackServerContext* context, const v1::KeepStackRequest* request,
                                      v1::KeepStackResponse* response) override {
    return run(context, request, response, &service::Controller::keep_stack);
  }
  grpc::ServerBidiReactor<v1::HeartbeatRequest, v1::BeatResponse>* Beat(grpc::CallbackServerContext* context) override {
    return beats_.open(*context);
  }
  grpc::ServerBidiReactor<v1::TaskRequest, v1::TaskResponse>* FollowTask(
      grpc::CallbackServerContext* context) override {
    return tasks_.open(*context);
  }
  grpc::ServerUnaryReactor* Rendezvous(grpc::CallbackServerContext* context, const v1::RendezvousRequest* request,
                                       v1::RendezvousResponse* response) override {
    auto* reactor = new Answer(guard_, *context);
    const auto meeting = std::make_shared<Meeting>(Meeting{reactor, request, response, bearer_token(*context),
                                                           boost::asio::steady_timer(meetings_.executor(), kPatience)});
    callers_.note_rank(*context, meeting->attempt());
    // A call whose client is gone waits no longer.
    reactor->on_cancel([this, meeting] { waiters_.give_up(*meeting); });
    if (!reactor->place().is_there()) {
      reactor->Finish(CallPlace::refused());
    } else if (auto status = check_key(request->has_key(), request->key()); !status.ok()) {
      reactor->Finish(status);
    } else if (request->endpoint().size() > kMaxText) {
      reactor->Finish(invalid("endpoint: at most 4096 characters"));
    } else {
      ask_later(meeting);
    }
    return reactor;
  }

 private:
  template <typename Request, typename Response>
  using Call = common::Outcome<Response> (service::Controller::*)(const Request&, const std::string& token);
  /// Calls the controller, from a thread that may wait.
  template <typename Request, typename Response>
  grpc::ServerUnaryReactor* run(grpc::CallbackServerContext* context, const Request* request, Response* response,
                                Call<Request, Response> call) {
    const core::AttemptKey attempt{request->key().job_id(), request->key().attempt()};
    callers_.note_rank(*context, attempt);
    auto* reactor = new Answer(guard_, *context);
    auto status = reactor->place().is_there() ? check_key(request->has_key(), request->key()) : CallPlace::refused();
    if (status.ok()) status = check(*request);
    if (!status.ok()) {
      reactor->Finish(status);
      return reactor;
    }
    const auto bytes = cost_of(*request);
    // Served even when the caller has given up meanwhile: that it called is news.
    const auto serve = [=, this] {
      const auto served =
          guarded([&] { return answer((controller_.*call)(*request, bearer_token(*context)), response); });
      reactor->place().heard(served);
      queued_.leave(attempt, bytes);
      reactor->Finish(served);
    };
    if (!queued_.enter(attempt, bytes)) {
      reactor->Finish(busy());
    } else if (!pool_.post(serve)) {
      queued_.leave(attempt, bytes);
      reactor->Finish(busy());
    }
    return reactor;
  }

  void ask_later(const std::shared_ptr<Meeting>& meeting) {
    // Who brings the address the others wait for does not queue behind them.
    auto& pool = meeting->request->endpoint().empty() ? meetings_ : pool_;
    if (!pool.post([this, meeting] { ask(meeting); })) meeting->reactor->Finish(busy());
  }

  void ask(const std::shared_ptr<Meeting>& meeting) {
    if (meeting->reactor->is_cancelled()) return meeting->reactor->Finish(grpc::Status::CANCELLED);
    const auto news = waiters_.news();
    const auto status =
        guarded([&] { return answer(controller_.rendezvous(*meeting->request, meeting->token), meeting->response); });
    const bool known = !meeting->response->endpoint().empty();
    meeting->reactor->place().heard(status);
    if (status.ok() && !meeting->request->endpoint().empty()) waiters_.announce(meeting->attempt());
    if (!status.ok() || known || meeting->response->directive() != v1::DIRECTIVE_CONTINUE) {
      meeting->reactor->Finish(status);
      return;
    }
    const auto waiting = waiters_.wait(meeting, news, [this, meeting](bool is_news) {
      is_news ? ask_later(meeting) : meeting->reactor->Finish(grpc::Status::OK);
    });
    if (waiting == RendezvousWaiters::Waiting::kNewsSince) ask_later(meeting);
    if (waiting == RendezvousWaiters::Waiting::kFull) meeting->reactor->Finish(busy());
  }

  service::Controller& controller_;
  const Callers& callers_;
  ReadGuard& guard_;
  ReadingProbe* const probe_;
  QueuedBytes queued_;
  // The pools come last: until they end, what is queued in them uses all the others.
  RendezvousWaiters waiters_;
  ReportStreams<v1::HeartbeatRequest, v1::BeatResponse> beats_;
  ReportStreams<v1::TaskRequest, v1::TaskResponse> tasks_;
  Pool meetings_{kMeetingThreads, kMaxRankCalls};  // so that heartbeats never queue behind ranks that meet
  Pool pool_{kRankThreads, kMaxRankCalls};         // what is queued in it may hold timers of meetings_
};

}  // namespace

RankService make_rank_service(service::Controller& controller, const Callers& callers, ReadGuard& guard,
                              ReadingProbe* probe) {
  auto calls = std::make_unique<RankCalls>(controller, callers, guard, probe);
  auto* stops = calls.get();
  return {std::move(calls), [stops] { stops->stop(); }};
}

}  // namespace rpc
