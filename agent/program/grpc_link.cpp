#include "agent/program/controller_link.h"

#include <algorithm>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <optional>
#include <system_error>
#include <thread>
#include <utility>
#include <vector>

#include "agent/rank/grpc/grpc_client.h"
#include "base/host_name.h"
#include "base/signals_blocked.h"

namespace agent::program {
namespace {

using std::chrono::milliseconds;

constexpr milliseconds kCallLimit{2000};
constexpr milliseconds kMeetLimit{5000};
constexpr milliseconds kAgain{200};
constexpr milliseconds kStackLimit{2000};
constexpr milliseconds kBackoffFirst{100};
constexpr milliseconds kBackoffMost{1'000};
/// A controller that has not answered for so long is asked to.
constexpr milliseconds kAskAfter{2'000};
/// The controller answers a stream every five seconds at the least.
constexpr milliseconds kUnansweredLimit{15'000};
/// Then the agent's log says that the controller has never been reached.
constexpr milliseconds kSayUnreachedAfter{10'000};
constexpr std::int64_t kIntervalLeastMs = 50;
constexpr std::int64_t kIntervalMostMs = 10'000;

/// Has one thread of its own, and the stream's.
class GrpcLink : public ControllerLink {
 public:
  GrpcLink(const rank::ControllerPlace& controller, const std::string& token, muster::v1::TaskRequest first,
           OnDirective on_directive)
      : client_(controller, token),
        on_directive_(std::move(on_directive)),
        key_(first.key()),
        told_{{std::move(first)}},
        backoff_(kBackoffFirst, kBackoffMost) {
    const base::SignalsBlocked quiet;  // signals are the main thread's
    thread_ = std::thread([this] { run(); });
  }

  ~GrpcLink() override {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    client_.cancel();
    wake_.notify_all();
    thread_.join();
  }

  GrpcLink(const GrpcLink&) = delete;
  GrpcLink& operator=(const GrpcLink&) = delete;

  void tell(const muster::v1::TaskRequest& request) override {
    {
      std::lock_guard lock(mutex_);
      std::erase_if(told_, [&](const Told& one) { return one.request.key().rank() == request.key().rank(); });
      told_.push_back({request});
      ++version_;
    }
    wake_.notify_all();
  }

  void tell_later(const muster::v1::TaskRequest& request) override {
    std::lock_guard lock(mutex_);
    for (auto& one : told_) {
      if (one.request.key().rank() == request.key().rank()) one.request = request;
    }
  }

  void hold(std::uint32_t rank) override {
    std::lock_guard lock(mutex_);
    for (auto& one : told_) one.is_held = one.is_held || one.request.key().rank() == rank;
  }

  bool flush(std::chrono::milliseconds patience) override {
    std::unique_lock lock(mutex_);
    const auto wanted = version_;
    return heard_.wait_for(lock, patience, [&] { return heard_version_ >= wanted; });
  }

  std::chrono::milliseconds unheard_for() const override {
    std::lock_guard lock(mutex_);
    return owes_since_ ? std::chrono::duration_cast<milliseconds>(Clock::now() - *owes_since_) : milliseconds(0);
  }

  std::string meet(const std::string& mine, rank::MeetingPatience patience) override {
    muster::v1::RendezvousRequest request;
    *request.mutable_key() = key_;
    request.set_endpoint(mine);
    while (patience.left(Clock::now()) > milliseconds(0)) {
      muster::v1::RendezvousResponse response;
      const bool answered = client_.call(&rank::GrpcClient::Stub::Rendezvous, request, response, kMeetLimit).ok();
      patience.heard(answered, Clock::now());
      if (answered) {
        if (!response.endpoint().empty()) return response.endpoint();
        if (response.directive() == muster::v1::DIRECTIVE_STOP) return {};
      }
      std::this_thread::sleep_for(kAgain);
    }
    return {};
  }

  bool give_stack(std::uint64_t number, std::uint32_t rank, const std::string& text) override {
    muster::v1::KeepStackRequest request;
    *request.mutable_key() = key_;
    request.mutable_key()->set_rank(rank);
    request.set_number(number);
    request.set_text(text);
    muster::v1::KeepStackResponse response;
    return client_.call(&rank::GrpcClient::Stub::KeepStack, request, response, kStackLimit).ok();
  }

 private:
  using Clock = std::chrono::steady_clock;
  using Lock = std::unique_lock<std::mutex>;

  /// One rank, and what the controller is told of it.
  struct Told {
    muster::v1::TaskRequest request;
    bool is_news = true;
    bool is_held = false;
  };

  void run() {
    std::unique_lock lock(mutex_);
    while (!closed_) {
      const auto version = version_;
      const bool told = send(lock);
      say_unreached(lock);
      const auto stream_ended = [&] { return told && stream_ && stream_->end(); };
      // A controller that has restarted may want to be told more often than the one before: its first answer says so.
      const auto is_to_wait = [&] { return !closed_ && version_ == version && stream_ && !is_answered_; };
      if (told && is_to_wait()) wake_.wait_for(lock, kCallLimit, [&] { return !is_to_wait() || stream_ended(); });
      wake_.wait_for(lock, told ? interval_ : backoff_.next(),
                     [&] { return closed_ || version_ != version || stream_ended(); });
    }
  }

  /// The requests that are to be sent now: all, or the news alone.
  std::vector<muster::v1::TaskRequest> to_send(bool all) {
    std::vector<muster::v1::TaskRequest> requests;
    for (auto& one : told_) {
      if (one.is_held || (!all && !one.is_news)) continue;
      one.is_news = false;
      requests.push_back(one.request);
    }
    return requests;
  }

  /// Sends them, with the lock released meanwhile. False: the controller can't be told now.
  /// News asks for an answer, so that flush() learns that it was heard. A stream that breaks is opened anew with all.
  bool send(Lock& lock) {
    if (stream_ && stream_->end()) {
      close_stream(lock);
      return false;
    }
    const bool opens = stream_ == nullptr;
    const bool all = opens || Clock::now() - all_sent_at_ >= interval_;
    auto requests = to_send(all);
    if (all) all_sent_at_ = Clock::now();
    if (requests.empty()) return true;
    if (opens || version_ > heard_version_ || Clock::now() - answered_at_ >= kAskAfter) {
      requests.back().set_answer_soon(true);
      ask((opens ? 0 : stream_->written()) + requests.size());
    }
    if (opens) is_answered_ = false, answered_at_ = Clock::now();
    lock.unlock();
    const bool written = (!opens || open_stream()) && std::ranges::all_of(requests, [&](const auto& request) {
                           return stream_->write(request, kCallLimit);
                         });
    lock.lock();
    if (is_answered_) backoff_.reset();
    if (written && !stream_is_broken()) return true;
    close_stream(lock);
    return false;
  }

  /// False: the system has no room for one.
  bool open_stream() {
    try {
      stream_ = std::make_unique<rank::TaskStream>(
          client_, [this](const muster::v1::TaskResponse& answer) { answered(answer); },
          [this] {
            std::lock_guard own(mutex_);
            wake_.notify_all();
          });
      return true;
    } catch (const std::system_error& error) {  // no thread is left on this machine
      const std::lock_guard own(mutex_);
      error_ = error.what();
      return false;
    }
  }

  /// Its thread may be about to tell an answer, so the lock is released meanwhile.
  void close_stream(Lock& lock) {
    lock.unlock();
    const auto end = stream_ ? stream_->end() : std::nullopt;
    if (end && !end->ok()) error_ = end->error_message();
    stream_.reset();
    lock.lock();
  }

  bool stream_is_broken() const {
    return !stream_ || stream_->end() ||
           Clock::now() - answered_at_ > (is_answered_ ? kUnansweredLimit + 3 * interval_ : kCallLimit);
  }

  /// In the log of the Slurm job: a name that this node does not know is told nowhere else.
  void say_unreached(Lock& lock) {
    const bool is_due = !was_answered_ && Clock::now() - began_at_ > kSayUnreachedAfter;
    if (!is_due || std::exchange(said_unreached_, true)) return;
    const auto why = error_.empty() ? "no answer" : error_;
    lock.unlock();  // the log may lie on a disk that does not answer
    std::fprintf(stderr, "muster-agent: musterd at %s does not answer on %s (%s)\n",
                 rank::to_string(client_.controller()).c_str(), base::node_name().c_str(), why.c_str());
    lock.lock();
  }

  /// Notes that an answer is asked for.
  void ask(std::uint64_t number) {
    asked_version_ = version_;
    asked_number_ = number;
    if (!owes_since_) owes_since_ = Clock::now();
  }

  void answered(const muster::v1::TaskResponse& answer) {
    const std::pair said(answer.directive(), answer.stop_grace_ms());
    const bool wants_another = std::exchange(said_, said) != said;
    const bool wants_stacks = std::exchange(stacks_, answer.stacks()) != answer.stacks();
    if (wants_another || wants_stacks) on_directive_(answer);
    std::lock_guard lock(mutex_);
    answered_at_ = Clock::now();
    const bool is_first = !std::exchange(is_answered_, true);
    was_answered_ = true;
    interval_ = milliseconds(std::clamp(answer.interval_ms(), kIntervalLeastMs, kIntervalMostMs));
    if (owes_since_) owes_since_ = answered_at_;
    if (is_first) wake_.notify_all();
    if (answer.requests_heard() < asked_number_) return;
    owes_since_.reset();
    heard_version_ = asked_version_;
    heard_.notify_all();
  }

  rank::GrpcClient client_;
  const OnDirective on_directive_;
  mutable std::mutex mutex_;
  std::condition_variable wake_, heard_;
  const muster::v1::RankKey key_;                               // of the agent's first rank
  std::vector<Told> told_;                                      // the rank with the newest news last
  std::uint64_t version_ = 1, heard_version_ = 0;               // of told_
  std::uint64_t asked_version_ = 0, asked_number_ = 0;          // of the newest request that asked for an answer
  std::optional<Clock::time_point> owes_since_ = Clock::now();  // the controller an answer
  Clock::time_point answered_at_ = Clock::now();                // on this stream; or the stream was opened then
  bool is_answered_ = false;                                    // this stream
  bool was_answered_ = false;                                   // some stream or call
  std::chrono::milliseconds interval_{500};
  bool closed_ = false;

  // Fields of the thread that hears.
  std::pair<muster::v1::Directive, std::int64_t> said_{muster::v1::DIRECTIVE_CONTINUE, 0};  // with the grace in ms
  std::uint64_t stacks_ = 0;
  // Fields of the thread that tells.
  rank::Backoff backoff_;
  Clock::time_point all_sent_at_{};
  const Clock::time_point began_at_ = Clock::now();
  bool said_unreached_ = false;
  std::string error_;  // with which the newest stream ended
  std::unique_ptr<rank::TaskStream> stream_;
  std::thread thread_;
};

}  // namespace

std::unique_ptr<ControllerLink> link_by_grpc(const rank::ControllerPlace& controller, const std::string& token,
                                             const muster::v1::TaskRequest& first, OnDirective on_directive) {
  return std::make_unique<GrpcLink>(controller, token, first, std::move(on_directive));
}

}  // namespace agent::program
