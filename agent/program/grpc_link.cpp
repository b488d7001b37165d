#include "agent/program/grpc_link.h"

#include <algorithm>
#include <cstdio>
#include <system_error>
#include <utility>

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

}  // namespace

GrpcLink::GrpcLink(const rank::Endpoint& controller, const std::string& token, muster::v1::TaskRequest first,
                   OnDirective on_directive)
    : controller_(controller),
      client_(controller, token),
      on_directive_(std::move(on_directive)),
      key_(first.key()),
      told_{{std::move(first)}},
      backoff_(kBackoffFirst, kBackoffMost) {
  const base::SignalsBlocked quiet;  // signals are the main thread's
  thread_ = std::thread([this] { run(); });
}

GrpcLink::~GrpcLink() {
  {
    std::lock_guard lock(mutex_);
    closed_ = true;
  }
  client_.cancel();
  wake_.notify_all();
  thread_.join();
}

void GrpcLink::tell(const muster::v1::TaskRequest& request) {
  {
    std::lock_guard lock(mutex_);
    std::erase_if(told_, [&](const Told& one) { return one.request.key().rank() == request.key().rank(); });
    told_.push_back({request});
    ++version_;
  }
  wake_.notify_all();
}

void GrpcLink::tell_later(const muster::v1::TaskRequest& request) {
  std::lock_guard lock(mutex_);
  for (auto& one : told_) {
    if (one.request.key().rank() == request.key().rank()) one.request = request;
  }
}

void GrpcLink::hold(std::uint32_t rank) {
  std::lock_guard lock(mutex_);
  for (auto& one : told_) one.is_held = one.is_held || one.request.key().rank() == rank;
}

bool GrpcLink::flush(milliseconds patience) {
  std::unique_lock lock(mutex_);
  const auto wanted = version_;
  return heard_.wait_for(lock, patience, [&] { return heard_version_ >= wanted; });
}

milliseconds GrpcLink::unheard_for() const {
  std::lock_guard lock(mutex_);
  return owes_since_ ? std::chrono::duration_cast<milliseconds>(Clock::now() - *owes_since_) : milliseconds(0);
}

std::string GrpcLink::meet(const std::string& mine, rank::MeetingPatience patience) {
  muster::v1::RendezvousRequest request;
  *request.mutable_key() = key_;
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

bool GrpcLink::give_stack(std::uint64_t number, std::uint32_t rank, const std::string& text) {
  muster::v1::KeepStackRequest request;
  *request.mutable_key() = key_;
  request.mutable_key()->set_rank(rank);
  request.set_number(number);
  request.set_text(text);
  muster::v1::KeepStackResponse response;
  return client_.call(request, response, kStackLimit).ok();
}

void GrpcLink::run() {
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

// In the log of the Slurm job: a name that this node does not know is told nowhere else.
void GrpcLink::say_unreached(Lock& lock) {
  const bool is_due = !was_answered_ && Clock::now() - began_at_ > kSayUnreachedAfter;
  if (!is_due || std::exchange(said_unreached_, true)) return;
  const auto why = error_.empty() ? "no answer" : error_;
  lock.unlock();  // the log may lie on a disk that does not answer
  std::fprintf(stderr, "muster-agent: musterd at %s does not answer on %s (%s)\n", rank::to_string(controller_).c_str(),
               base::node_name().c_str(), why.c_str());
  lock.lock();
}

std::vector<muster::v1::TaskRequest> GrpcLink::to_send(bool all) {
  std::vector<muster::v1::TaskRequest> requests;
  for (auto& one : told_) {
    if (one.is_held || (!all && !one.is_news)) continue;
    one.is_news = false;
    requests.push_back(one.request);
  }
  return requests;
}

// News asks for an answer, so that flush() learns that it was heard. A stream that breaks is opened anew with all.
bool GrpcLink::send(Lock& lock) {
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

bool GrpcLink::open_stream() {
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

bool GrpcLink::stream_is_broken() const {
  return !stream_ || stream_->end() ||
         Clock::now() - answered_at_ > (is_answered_ ? kUnansweredLimit + 3 * interval_ : kCallLimit);
}

// Its thread may be about to tell an answer, so the lock is released meanwhile.
void GrpcLink::close_stream(Lock& lock) {
  lock.unlock();
  const auto end = stream_ ? stream_->end() : std::nullopt;
  if (end && !end->ok()) error_ = end->error_message();
  stream_.reset();
  lock.lock();
}

void GrpcLink::ask(std::uint64_t number) {
  asked_version_ = version_;
  asked_number_ = number;
  if (!owes_since_) owes_since_ = Clock::now();
}

void GrpcLink::answered(const muster::v1::TaskResponse& answer) {
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

std::unique_ptr<ControllerLink> link_by_grpc(const rank::Endpoint& controller, const std::string& token,
                                             const muster::v1::TaskRequest& first, OnDirective on_directive) {
  return std::make_unique<GrpcLink>(controller, token, first, std::move(on_directive));
}

}  // namespace agent::program
