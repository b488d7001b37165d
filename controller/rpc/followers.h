#pragma once

#include <grpcpp/grpcpp.h>

#include <boost/asio/post.hpp>
#include <boost/asio/thread_pool.hpp>

#include <atomic>
#include <chrono>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <utility>

#include "controller/common/loop.h"
#include "controller/rpc/call.h"
#include "controller/service/controller.h"

namespace rpc {

/// A fixed number of threads and a bounded queue. Thread-safe.
class Pool {
 public:
  Pool(std::size_t threads, std::size_t max_queued) : max_queued_(max_queued), threads_(threads) {}
  /// Runs the queued tasks, then ends the threads.
  ~Pool() { threads_.join(); }

  /// Returns false if the queue is full. Then `task` never runs. It must not throw.
  template <typename Task>
  [[nodiscard]] bool post(Task task) {
    if (queued_.fetch_add(1) >= max_queued_) {
      --queued_;
      return false;
    }
    boost::asio::post(threads_, [this, task = std::move(task)]() mutable {
      --queued_;
      task();
    });
    return true;
  }
  /// For timers, which call from the pool's threads.
  auto executor() { return threads_.get_executor(); }

 private:
  const std::size_t max_queued_;
  std::atomic<std::size_t> queued_{0};
  boost::asio::thread_pool threads_;
};

/// The answer of a source that is asked for its next message.
struct Turn {
  enum class Kind { kMessage, kWait, kEnd };
  Kind kind = Kind::kWait;
  grpc::Status status;  // of the end

  static Turn message() { return {Kind::kMessage, {}}; }
  /// There is nothing now. It is asked again after a change of its job, or a little later.
  static Turn wait() { return {Kind::kWait, {}}; }
  static Turn end(grpc::Status status = grpc::Status::OK) { return {Kind::kEnd, std::move(status)}; }
};

/// Messages that one follower is told, one after the other. A source never waits. For one thread at a time.
template <typename Message>
class Source {
 public:
  virtual ~Source() = default;
  virtual Turn next(Message& message) = 0;
  /// True: the next message is in memory, and gRPC's own thread may ask for it.
  virtual bool has_more() const { return false; }
};

/// How long a follower rests once it has been told everything. At least kLeast, so that a busy job does not keep its
/// followers busy; until a change of its job; at most `longest`, or a millisecond a follower if that is longer.
struct Rest {
  static constexpr core::Millis kLeast{100};
  core::JobId job = 0;  // 0: of any job
  core::Millis longest{1000};
  /// False: the call ends by itself once everything was told, and counts among the reads of its user.
  bool follows = true;
};

/// Everybody who follows or reads jobs, logs, events, metrics and stacks: thousands at once, since a call that waits
/// for news or for its client holds no thread. kThreads threads ask the sources, and one looks who is to be asked
/// again. Thread-safe.
class Followers {
 public:
  static constexpr std::size_t kMost = 4096;
  static constexpr std::size_t kMostOfUser = 16;
  static constexpr std::size_t kMostReadsOfUser = 64;
  static constexpr int kThreads = 8;
  /// A client must take a message within this time. People read a page of `less` meanwhile.
  static constexpr core::Millis kPatience{10 * 60'000};

  explicit Followers(service::Controller& controller, core::Millis patience = kPatience);
  ~Followers() { stop(); }

  /// Begins to tell what `source` says. Returns the call's reactor, which ends the call with RESOURCE_EXHAUSTED if
  /// there are too many followers, of all or of this user.
  template <typename Message>
  grpc::ServerWriteReactor<Message>* begin(grpc::CallbackServerContext& context, Rest rest,
                                           std::unique_ptr<Source<Message>> source);

  /// How many follow or read now.
  std::size_t open() const {
    const std::lock_guard lock(mutex_);
    return open_;
  }
  /// Ends all with UNAVAILABLE, and every later one at once.
  void stop();

 private:
  using Clock = std::chrono::steady_clock;

  /// A follower as the registry sees it.
  class Waiter {
   public:
    virtual ~Waiter() = default;
    /// Runs in a thread of the pool.
    virtual void turn() = 0;
    virtual bool is_cancelled() const = 0;
    /// When the message was begun that the client has not taken yet; nullopt: there is none.
    virtual std::optional<Clock::time_point> writes_since() const = 0;
    virtual void cancel() = 0;
  };
  template <typename Message>
  class Follower;

  struct Waiting {
    std::shared_ptr<Waiter> who;
    Rest rest;
    std::uint64_t seen = 0;  // the newest change before it was told everything
    Clock::time_point since{};
  };

  struct OfUser {
    std::size_t followers = 0, reads = 0;
  };

  /// Why this user may not follow or read; OK: it is counted.
  grpc::Status enter(const std::string& user, bool follows);
  void leave(const std::string& user, bool follows, const std::shared_ptr<Waiter>& who);
  /// From now on it is looked at whether its client takes what it is told.
  void note(std::shared_ptr<Waiter> who);
  void run(std::shared_ptr<Waiter> who);
  void wait(std::shared_ptr<Waiter> who, const Rest& rest, std::uint64_t seen);
  bool is_stopping() const {
    const std::lock_guard lock(mutex_);
    return stopping_;
  }
  static grpc::Status leaving();
  std::optional<core::Millis> look();
  void cancel_stalled();

  service::Controller& controller_;
  const core::Millis patience_;
  mutable std::mutex mutex_;
  bool stopping_ = false;
  std::size_t open_ = 0;
  std::map<std::string, OfUser> users_;
  std::set<std::shared_ptr<Waiter>> noted_;
  Clock::time_point checked_{};
  std::list<Waiting> waiting_;
  Pool pool_{kThreads, 2 * kMost};
  common::Loop loop_;
};

/// The user that a call names in its metadata `muster-user`; if it names none, the address that it comes from.
std::string caller_of(const grpc::ServerContextBase& context);

/// One call that follows, from its begin to its end. One thing is under way at a time: a turn, a write, or a wait.
template <typename Message>
class Followers::Follower final : public grpc::ServerWriteReactor<Message>,
                                  public Waiter,
                                  public std::enable_shared_from_this<Follower<Message>> {
 public:
  Follower(Followers& all, grpc::CallbackServerContext& context, std::string user, Rest rest,
           std::unique_ptr<Source<Message>> source)
      : all_(all), context_(context), user_(std::move(user)), rest_(rest), source_(std::move(source)) {}

  /// `self` keeps this alive until gRPC is done with it.
  void begin(std::shared_ptr<Follower> self) {
    self_ = std::move(self);
    all_.note(self_);
    all_.run(self_);
  }
  void turn() override {
    if (all_.is_stopping()) return this->Finish(leaving());
    if (is_cancelled()) return this->Finish(failure(grpc::StatusCode::CANCELLED, "the client left"));
    const auto seen = all_.controller_.newest_change(rest_.job);
    Turn turn;
    const auto status = guarded([&] {
      turn = source_->next(message_);
      return grpc::Status::OK;
    });
    if (!status.ok()) turn = Turn::end(status);
    switch (turn.kind) {
      case Turn::Kind::kMessage:
        writes_since_ = Clock::now().time_since_epoch().count();
        has_more_ = source_->has_more();
        return this->StartWrite(&message_);
      case Turn::Kind::kWait:
        return all_.wait(this->shared_from_this(), rest_, seen);
      case Turn::Kind::kEnd:
        return this->Finish(turn.status);
    }
  }
  bool is_cancelled() const override { return cancelled_; }
  std::optional<Clock::time_point> writes_since() const override {
    const auto since = writes_since_.load();
    return since == 0 ? std::nullopt : std::optional(Clock::time_point(Clock::duration(since)));
  }
  void cancel() override {
    const std::lock_guard lock(mutex_);
    if (!is_done_) context_.TryCancel();
  }

  void OnWriteDone(bool ok) override {
    writes_since_ = 0;
    if (!ok) cancelled_ = true;
    // A million messages would each pay for the way to another thread.
    if (has_more_) return turn();
    all_.run(this->shared_from_this());
  }
  void OnCancel() override { cancelled_ = true; }
  void OnDone() override {
    const auto self = std::move(self_);
    {
      const std::lock_guard lock(mutex_);
      is_done_ = true;
    }
    all_.leave(user_, rest_.follows, self);
  }

 private:
  Followers& all_;
  grpc::CallbackServerContext& context_;
  const std::string user_;
  const Rest rest_;
  const std::unique_ptr<Source<Message>> source_;
  std::shared_ptr<Follower> self_;
  std::atomic<bool> cancelled_{false};
  std::atomic<Clock::rep> writes_since_{0};
  std::mutex mutex_;
  bool is_done_ = false;  // the context is gone
  bool has_more_ = false;
  Message message_;
};

/// Ends a call at once.
template <typename Message>
class RefusedFollower final : public grpc::ServerWriteReactor<Message> {
 public:
  explicit RefusedFollower(const grpc::Status& status) { this->Finish(status); }
  void OnDone() override { delete this; }
};

template <typename Message>
grpc::ServerWriteReactor<Message>* Followers::begin(grpc::CallbackServerContext& context, Rest rest,
                                                    std::unique_ptr<Source<Message>> source) {
  auto user = caller_of(context);
  if (const auto status = enter(user, rest.follows); !status.ok()) return new RefusedFollower<Message>(status);
  auto follower = std::make_shared<Follower<Message>>(*this, context, std::move(user), rest, std::move(source));
  auto* reactor = follower.get();
  follower->begin(follower);
  return reactor;
}

}  // namespace rpc
