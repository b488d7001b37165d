#include "rpc/sources.h"

#include <functional>
#include <utility>
#include <vector>

namespace rpc {
namespace {

namespace v1 = muster::v1;

constexpr std::uint32_t kEventsAPage = 500;
constexpr std::uint32_t kMetricsAPage = 1000;

/// The job as bytes, without the ages of heartbeats, which change all the time. A watcher gets the job again when its
/// fingerprint changes.
std::string fingerprint(v1::Job job) {
  job.clear_spec();
  for (auto& rank : *job.mutable_ranks()) rank.clear_last_heartbeat_ms();
  return job.SerializeAsString();
}

class WatchSource final : public Source<v1::Job> {
 public:
  WatchSource(service::Controller& controller, const v1::GetRequest& request)
      : controller_(controller), job_(request.job_id()) {}

  Turn next(v1::Job& message) override {
    if (is_over_) return Turn::end();
    auto job = controller_.get(job_);
    if (!job.ok()) return Turn::end(failure(job.refusal()));
    is_over_ = is_ended_job(job.value().state());
    auto print = fingerprint(job.value());
    if (print == shown_) return is_over_ ? Turn::end() : Turn::wait();
    shown_ = std::move(print);
    message = std::move(job.value());
    return Turn::message();
  }

 private:
  service::Controller& controller_;
  const core::JobId job_;
  std::string shown_;
  bool is_over_ = false;
};

class TraceSource final : public Source<v1::TraceView> {
 public:
  TraceSource(service::Controller& controller, const v1::TraceRequest& request)
      : controller_(controller), request_(request) {}

  Turn next(v1::TraceView& message) override {
    if (is_over_) return Turn::end();
    // Asked again and again: the same number is one request.
    auto now = controller_.trace(request_);
    if (!now.ok()) return Turn::end(failure(now.refusal()));
    is_over_ = !request_.follow() || now.value().state() == "over";
    auto print = now.value().SerializeAsString();
    if (print == shown_) return is_over_ ? Turn::end() : Turn::wait();
    shown_ = std::move(print);
    message = std::move(now.value());
    return Turn::message();
  }

 private:
  service::Controller& controller_;
  const v1::TraceRequest& request_;
  std::string shown_;
  bool is_over_ = false;
};

/// True once `job` has ended. Everything that will ever be told can then be read. Job 0 means all jobs and never ends.
base::Outcome<bool> has_ended(service::Controller& controller, core::JobId job) {
  if (job == 0) return false;
  const auto now = controller.get(job);
  if (!now.ok()) return now.refusal();
  return is_ended_job(now.value().state());
}

/// As has_ended(), and also true for a removed job, whose events can still be read.
base::Outcome<bool> has_ended_or_is_removed(service::Controller& controller, core::JobId job) {
  auto ended = has_ended(controller, job);
  const bool unknown = !ended.ok() && ended.refusal().kind == base::Refusal::Kind::kNotFound;
  if (unknown && !controller.events(job, 0, 1).empty()) return true;
  return ended;
}

/// Reads pages until one is empty. With `follow`, waits for more until the job has ended.
template <typename Message>
class PageSource final : public Source<Message> {
 public:
  struct Rules {
    bool follow = false;
    std::function<base::Outcome<bool>()> has_ended;
    std::function<std::vector<Message>()> next_page;
  };
  explicit PageSource(Rules rules) : rules_(std::move(rules)) {}

  Turn next(Message& message) override {
    if (at_ == page_.size()) {
      // Asked before the pages are read: what an ended job has told is in them.
      if (!std::exchange(is_reading_, true)) {
        const auto ended = rules_.has_ended();
        if (!ended.ok()) return Turn::end(failure(ended.refusal()));
        is_over_ = ended.value() || !rules_.follow;
      }
      page_ = rules_.next_page();
      at_ = 0;
    }
    if (page_.empty()) {
      is_reading_ = false;
      return is_over_ ? Turn::end() : Turn::wait();
    }
    message = std::move(page_[at_++]);
    return Turn::message();
  }

 private:
  const Rules rules_;
  std::vector<Message> page_;
  std::size_t at_ = 0;
  bool is_reading_ = false, is_over_ = false;
};

}  // namespace

std::unique_ptr<Source<v1::Job>> watch_source(service::Controller& controller, const v1::GetRequest& request) {
  return std::make_unique<WatchSource>(controller, request);
}

std::unique_ptr<Source<v1::TraceView>> trace_source(service::Controller& controller, const v1::TraceRequest& request) {
  return std::make_unique<TraceSource>(controller, request);
}

std::unique_ptr<Source<v1::Event>> events_source(service::Controller& controller, const v1::EventsRequest& request) {
  const auto job = request.job_id();
  return std::make_unique<PageSource<v1::Event>>(PageSource<v1::Event>::Rules{
      request.follow(), [&controller, job] { return has_ended_or_is_removed(controller, job); },
      [&controller, job, after = request.after_id()]() mutable {
        auto page = controller.events(job, after, kEventsAPage);
        if (!page.empty()) after = page.back().id();
        return page;
      }});
}

std::unique_ptr<Source<v1::Metric>> metrics_source(service::Controller& controller, const v1::MetricsRequest& request) {
  const auto job = request.job_id();
  const auto attempt = request.attempt();
  const auto ended = [&controller, job, attempt]() -> base::Outcome<bool> {
    if (attempt == 0) return has_ended(controller, job);
    const auto now = controller.get(job);
    if (!now.ok()) return now.refusal();
    if (auto missing = missing_attempt(now.value(), attempt)) return *missing;
    return is_ended_job(now.value().state());
  };
  return std::make_unique<PageSource<v1::Metric>>(PageSource<v1::Metric>::Rules{
      request.follow(), ended,
      [&controller, job, attempt, after_attempt = core::AttemptNumber{0}, after_step = core::Step{0}]() mutable {
        auto page = controller.metrics(job, attempt, after_attempt, after_step, kMetricsAPage);
        if (!page.empty()) {
          after_attempt = page.back().attempt();
          after_step = page.back().step();
        }
        return page;
      }});
}

}  // namespace rpc
