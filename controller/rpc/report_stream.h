#pragma once

#include <grpcpp/grpcpp.h>

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

#include "controller/rpc/call.h"
#include "controller/rpc/followers.h"
#include "controller/rpc/read_guard.h"
#include "controller/service/controller.h"
#include "muster/v1/rank_service.grpc.pb.h"

namespace rpc {

// The bounds of each field. muster's own programs send less, so what is longer is no rank's.
/// Last words, node names, endpoints, paths of checkpoints, notes about lines, errors of one line.
inline constexpr std::size_t kMaxText = 4096;
/// Names of sections, types of errors.
inline constexpr std::size_t kMaxName = 512;
/// The stack in a program's error.
inline constexpr std::size_t kMaxTrace = 64 * 1024;
/// The settings of a program's run.
inline constexpr std::size_t kMaxConfig = 64 * 1024;
/// Steps of a trace, see agent::protocol::kMostTraceSteps.
inline constexpr int kMaxStepsWritten = 10'000;

grpc::Status invalid(const std::string& text);
/// Too many calls of ranks wait.
grpc::Status busy();
/// Refuses requests that no rank and no task sends.
grpc::Status check_key(bool has_key, const muster::v1::RankKey& key);
grpc::Status check(const muster::v1::RegisterRequest& request);
grpc::Status check(const muster::v1::HeartbeatRequest& request);
grpc::Status check(const muster::v1::TaskRequest& request);
grpc::Status check(const muster::v1::KeepStackRequest& request);

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

}  // namespace rpc
