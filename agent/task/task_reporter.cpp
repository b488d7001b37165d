#include "agent/task/task_reporter.h"

#include <algorithm>

#include "os/signals_blocked.h"

namespace agent::task {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr milliseconds kCallLimit{2000};
constexpr milliseconds kMeetLimit{5000};
constexpr milliseconds kAgain{200};
constexpr std::int64_t kIntervalLeastMs = 50;
constexpr std::int64_t kIntervalMostMs = 10'000;

}  // namespace

TaskReporter::TaskReporter(const worker::Endpoint& controller, const std::string& token, muster::v1::TaskRequest first,
                           OnDirective on_directive)
    : client_(controller, token), on_directive_(std::move(on_directive)), request_(std::move(first)) {
  const os::SignalsBlocked quiet;  // signals are the main thread's
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
  }
  wake_.notify_all();
}

bool TaskReporter::flush(milliseconds patience) {
  std::unique_lock lock(mutex_);
  const auto wanted = version_;
  return heard_.wait_for(lock, patience, [&] { return heard_version_ >= wanted; });
}

milliseconds TaskReporter::unheard_for() const {
  std::lock_guard lock(mutex_);
  return std::chrono::duration_cast<milliseconds>(Clock::now() - heard_at_);
}

std::string TaskReporter::meet(const std::string& mine, worker::MeetingPatience patience) {
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

void TaskReporter::run() {
  auto said = muster::v1::DIRECTIVE_CONTINUE;
  milliseconds interval{500};
  std::unique_lock lock(mutex_);
  while (!closed_) {
    const auto request = request_;
    const auto version = version_;
    lock.unlock();
    muster::v1::TaskResponse response;
    const bool heard = client_.call(request, response, kCallLimit).ok();
    if (heard && response.directive() != said) {
      said = response.directive();
      on_directive_(response);
    }
    lock.lock();
    if (heard) {
      heard_version_ = std::max(heard_version_, version);
      heard_at_ = Clock::now();
      heard_.notify_all();
      interval = milliseconds(std::clamp(response.interval_ms(), kIntervalLeastMs, kIntervalMostMs));
    }
    wake_.wait_for(lock, heard ? interval : kAgain, [&] { return closed_ || version_ != version; });
  }
}

std::unique_ptr<ControllerLink> report_by_grpc(const worker::Endpoint& controller, const std::string& token,
                                               const muster::v1::TaskRequest& first, OnDirective on_directive) {
  return std::make_unique<TaskReporter>(controller, token, first, std::move(on_directive));
}

}  // namespace agent::task
