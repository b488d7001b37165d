#include "agent/task/task_reporter.h"

#include <algorithm>
#include <cstdio>
#include <utility>

#include "base/host_name.h"
#include "base/signals_blocked.h"

namespace agent::task {
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
/// Then the task's log says that the controller has never been reached.
constexpr milliseconds kSayUnreachedAfter{10'000};
constexpr std::int64_t kIntervalLeastMs = 50;
constexpr std::int64_t kIntervalMostMs = 10'000;

}  // namespace

TaskReporter::TaskReporter(const rank::Endpoint& controller, const std::string& token, muster::v1::TaskRequest first,
                           OnDirective on_directive)
    : controller_(controller),
      client_(controller, token),
      on_directive_(std::move(on_directive)),
      request_(std::move(first)),
      backoff_(kBackoffFirst, kBackoffMost) {
  const base::SignalsBlocked quiet;  // signals are the main thread's
  thread_ = std::thread([this] { run(); });
}

TaskReporter::~TaskReporter() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  client_.cancel();
  wake_.notify_all();
  thread_.join();
}

void TaskReporter::tell(const muster::v1::TaskRequest& request) {
  {
    std::lock_guard lock(mutex_);
    request_ = request;
    ++version_;
    holds_ = false;
  }
  wake_.notify_all();
}

void TaskReporter::tell_later(const muster::v1::TaskRequest& request) {
  std::lock_guard lock(mutex_);
  request_ = request;
}

void TaskReporter::hold() {
  std::lock_guard lock(mutex_);
  holds_ = true;
}

bool TaskReporter::flush(milliseconds patience) {
  std::unique_lock lock(mutex_);
  const auto wanted = version_;
  return heard_.wait_for(lock, patience, [&] { return heard_version_ >= wanted; });
}

milliseconds TaskReporter::unheard_for() const {
  std::lock_guard lock(mutex_);
  return owes_since_ ? std::chrono::duration_cast<milliseconds>(Clock::now() - *owes_since_) : milliseconds(0);
}

std::string TaskReporter::meet(const std::string& mine, rank::MeetingPatience patience) {
  muster::v1::RendezvousRequest request;
  {
    std::lock_guard lock(mutex_);
    *request.mutable_key() = request_.key();
  }
  request.set_endpoint(mine);
  while (patience.left(Clock::now()) > milliseconds(0)) {
    muster::v1::RendezvousResponse response;
    const bool answered = client_.call(request, response, kMeetLimit).ok();
    patience.heard(answered, Clock::now());
    if (answered) {
      if (!response.endpoint().empty()) return response.endpoint();
      if (response.directive() == muster::v1::DIRECTIVE_STOP) return {};
    }
    std::this_thread::sleep_for(kAgain);
  }
  return {};
}

bool TaskReporter::give_stack(std::uint64_t number, const std::string& text) {
  muster::v1::KeepStackRequest request;
  {
    std::lock_guard lock(mutex_);
    *request.mutable_key() = request_.key();
  }
  request.set_number(number);
  request.set_text(text);
  muster::v1::KeepStackResponse response;
  return client_.call(request, response, kStackLimit).ok();
}

void TaskReporter::run() {
  std::unique_lock lock(mutex_);
  while (!closed_) {
    wake_.wait(lock, [&] { return closed_ || !holds_; });
    const auto version = version_;
    const bool told = send(lock);
    say_unreached();
    const auto stream_ended = [&] { return told && stream_ && stream_->end(); };
    // A controller that has restarted may want to be told more often than the one before: its first answer says so.
    const auto is_to_wait = [&] { return !closed_ && version_ == version && stream_ && !is_answered_; };
    if (told && is_to_wait()) wake_.wait_for(lock, kCallLimit, [&] { return !is_to_wait() || stream_ended(); });
    wake_.wait_for(lock, told ? interval_ : backoff_.next(),
                   [&] { return closed_ || version_ != version || stream_ended(); });
  }
}

// In the log of the Slurm job: a name that this node does not know is told nowhere else.
void TaskReporter::say_unreached() {
  const bool is_due = !was_answered_ && Clock::now() - began_at_ > kSayUnreachedAfter;
  if (!is_due || std::exchange(said_unreached_, true)) return;
  std::fprintf(stderr, "muster-task: musterd at %s does not answer on %s (%s)\n", rank::to_string(controller_).c_str(),
               base::node_name().c_str(), error_.empty() ? "no answer" : error_.c_str());
}

// A request with news asks for an answer, so that flush() learns that the news was heard.
bool TaskReporter::send(Lock& lock) {
  auto request = request_;
  const bool opens = stream_ == nullptr;
  request.set_answer_soon(opens || version_ > heard_version_ || Clock::now() - answered_at_ >= kAskAfter);
  if (request.answer_soon()) ask(opens ? 1 : stream_->written() + 1);
  if (opens) is_answered_ = false, answered_at_ = Clock::now();
  lock.unlock();
  if (opens) open_stream();
  const bool written = stream_->write(request, kCallLimit);
  lock.lock();
  if (is_answered_) backoff_.reset();
  if (written && !stream_is_broken()) return true;
  close_stream(lock);
  return false;
}

void TaskReporter::open_stream() {
  stream_ = std::make_unique<rank::TaskStream>(
      client_, [this](const muster::v1::TaskResponse& answer) { answered(answer); },
      [this] {
        std::lock_guard own(mutex_);
        wake_.notify_all();
      });
}

bool TaskReporter::stream_is_broken() const {
  return stream_->end() || Clock::now() - answered_at_ > (is_answered_ ? kUnansweredLimit + 3 * interval_ : kCallLimit);
}

// Its thread may be about to tell an answer, so the lock is released meanwhile.
void TaskReporter::close_stream(Lock& lock) {
  lock.unlock();
  const auto end = stream_->end();
  if (end && !end->ok()) error_ = end->error_message();
  stream_.reset();
  lock.lock();
}

void TaskReporter::ask(std::uint64_t number) {
  asked_version_ = version_;
  asked_number_ = number;
  if (!owes_since_) owes_since_ = Clock::now();
}

void TaskReporter::answered(const muster::v1::TaskResponse& answer) {
  const bool wants_another = std::exchange(said_, answer.directive()) != answer.directive();
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

std::unique_ptr<ControllerLink> report_by_grpc(const rank::Endpoint& controller, const std::string& token,
                                               const muster::v1::TaskRequest& first, OnDirective on_directive) {
  return std::make_unique<TaskReporter>(controller, token, first, std::move(on_directive));
}

}  // namespace agent::task
