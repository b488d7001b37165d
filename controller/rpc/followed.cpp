#include "controller/rpc/services.h"

#include <algorithm>
#include <functional>
#include <optional>
#include <utility>
#include <vector>

namespace rpc {
namespace {

namespace v1 = muster::v1;

constexpr std::uint32_t kEventsAPage = 500;
constexpr std::uint32_t kMetricsAPage = 1000;
constexpr std::uint32_t kJobsAPage = 1000;
constexpr std::size_t kStacksBytesAMessage = std::size_t{512} << 10;
constexpr int kStacksAMessage = 256;

/// The job as bytes, without the ages of heartbeats, which change all the time. A watcher gets the job again when its
/// fingerprint changes.
std::string fingerprint(v1::Job job) {
  job.clear_spec();
  for (auto& rank : *job.mutable_ranks()) rank.clear_last_heartbeat_ms();
  return job.SerializeAsString();
}

/// The state of something now, and again when its fingerprint has changed, until it is the last one.
template <typename Message>
class StateSource final : public Source<Message> {
 public:
  struct Rules {
    std::function<common::Outcome<Message>()> read;
    std::function<bool(const Message&)> is_last;
    std::function<std::string(const Message&)> fingerprint;
  };
  explicit StateSource(Rules rules) : rules_(std::move(rules)) {}

  Turn next(Message& message) override {
    if (is_over_) return Turn::end();
    auto now = rules_.read();
    if (!now.ok()) return Turn::end(failure(now.refusal()));
    is_over_ = rules_.is_last(now.value());
    auto print = rules_.fingerprint(now.value());
    if (print == shown_) return is_over_ ? Turn::end() : Turn::wait();
    shown_ = std::move(print);
    message = std::move(now.value());
    return Turn::message();
  }

 private:
  const Rules rules_;
  std::string shown_;
  bool is_over_ = false;
};

/// True once `job` has ended. Everything that will ever be told can then be read. Job 0 means all jobs and never ends.
common::Outcome<bool> has_ended(service::Controller& controller, core::JobId job) {
  if (job == 0) return false;
  const auto now = controller.get(job);
  if (!now.ok()) return now.refusal();
  return is_ended_job(now.value().state());
}

/// Answers as has_ended() does, and is also true for a removed job, whose events can still be read.
common::Outcome<bool> has_ended_or_is_removed(service::Controller& controller, core::JobId job) {
  auto ended = has_ended(controller, job);
  const bool unknown = !ended.ok() && ended.refusal().kind == common::Refusal::Kind::kNotFound;
  if (unknown && !controller.events(job, 0, 1).empty()) return true;
  return ended;
}

/// Reads pages until one is empty. With `follow`, waits for more until the job has ended.
template <typename Message>
class PageSource final : public Source<Message> {
 public:
  struct Rules {
    bool follow = false;
    std::function<common::Outcome<bool>()> has_ended;
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
  bool has_more() const override { return at_ < page_.size(); }

 private:
  const Rules rules_;
  std::vector<Message> page_;
  std::size_t at_ = 0;
  bool is_reading_ = false, is_over_ = false;
};

class SweepMetricsSource final : public Source<v1::JobMetrics> {
 public:
  SweepMetricsSource(service::Controller& controller, const v1::SweepMetricsRequest& request)
      : controller_(controller), series_(request.series()) {
    wanted_.set_sweep(request.sweep());
    wanted_.set_with_series(true);
    wanted_.set_limit(kJobsAPage);
  }

  Turn next(v1::JobMetrics& message) override {
    if (wanted_.sweep().empty()) {
      return Turn::end(failure(grpc::StatusCode::INVALID_ARGUMENT, "sweep: want a sweep's name"));
    }
    message.Clear();
    while (message.metrics_size() == 0) {
      if (at_ == jobs_.jobs_size()) {
        if (is_last_page_) return Turn::end();
        next_jobs();
      } else if (!has_reported(jobs_.jobs(at_)) || !next_page(jobs_.jobs(at_).id(), message)) {
        ++at_;
        after_attempt_ = 0;
        after_step_ = 0;
      }
    }
    return Turn::message();
  }

 private:
  void next_jobs() {
    if (at_ > 0) wanted_.set_before_id(jobs_.jobs(at_ - 1).id());
    jobs_ = controller_.list(wanted_);
    at_ = 0;
    is_last_page_ = jobs_.jobs_size() < static_cast<int>(kJobsAPage);
  }
  bool has_reported(const v1::Job& job) const {
    return std::ranges::any_of(job.series(), [&](const auto& one) { return one.name() == series_; });
  }
  /// Adds a page of the job. False: it was the last one.
  bool next_page(core::JobId job, v1::JobMetrics& message) {
    const auto page = controller_.metrics(job, 0, after_attempt_, after_step_, kMetricsAPage);
    message.set_job_id(job);
    for (const auto& metric : page) {
      if (metric.has_aged_before_step()) add_points(job, metric, message);
      const auto value = metric.series().find(series_);
      if (value != metric.series().end()) add(message, metric.attempt(), metric.step(), value->second);
    }
    if (page.size() < kMetricsAPage) return false;
    after_attempt_ = page.back().attempt();
    after_step_ = page.back().step();
    return true;
  }
  /// Adds what is left of the steps of an attempt before its first row: the lowest, the highest and the last value of
  /// each bucket, so that the best value of all is among them.
  void add_points(core::JobId job, const v1::Metric& first, v1::JobMetrics& message) const {
    const auto thinned = controller_.thinned({.job = job, .to = first.aged_before_step() - 1});
    for (const auto& curve : thinned.series) {
      if (curve.name != series_) continue;
      for (const auto& [attempt, spot, is_last] : curve.points) {
        const bool is_aged = attempt == first.attempt() && spot.step < first.aged_before_step();
        if (is_aged) add(message, attempt, spot.step, spot.value);
      }
    }
  }
  void add(v1::JobMetrics& message, core::AttemptNumber attempt, core::Step step, double value) const {
    auto& one = *message.add_metrics();
    one.set_attempt(attempt);
    one.set_step(step);
    (*one.mutable_series())[series_] = value;
  }

  service::Controller& controller_;
  const std::string series_;
  v1::ListRequest wanted_;
  v1::ListResponse jobs_;
  int at_ = 0;  // in jobs_
  bool is_last_page_ = false;
  core::AttemptNumber after_attempt_ = 0;
  core::Step after_step_ = 0;
};

class StacksSource final : public Source<v1::StacksView> {
 public:
  StacksSource(service::Controller& controller, const v1::StacksRequest& request)
      : controller_(controller), wanted_(request) {}

  Turn next(v1::StacksView& message) override {
    if (!ranks_) return begin(message);
    message.Clear();
    std::size_t bytes = 0;
    for (; at_ < ranks_->size() && bytes < kStacksBytesAMessage && message.ranks_size() < kStacksAMessage; ++at_) {
      auto& rank = *message.add_ranks();
      rank.Swap(ranks_->Mutable(at_));
      if (rank.problem().empty()) rank.set_text(controller_.stack_text(attempt_, wanted_.number(), rank.rank()));
      bytes += rank.text().size() + rank.problem().size();
    }
    return message.ranks_size() > 0 ? Turn::message() : Turn::end();
  }

 private:
  Turn begin(v1::StacksView& message) {
    auto view = controller_.stacks(wanted_);
    if (!view.ok()) return Turn::end(failure(view.refusal()));
    message = std::move(view.value());
    // Stacks that were asked for are waited for, and not asked for again.
    wanted_.set_ask(false);
    wanted_.set_attempt(message.attempt());
    wanted_.set_number(message.shown().number());
    if (message.has_shown() && !message.shown().over()) return Turn::wait();
    attempt_ = {message.job_id(), message.attempt()};
    ranks_.emplace().Swap(message.mutable_ranks());
    return Turn::message();
  }

  service::Controller& controller_;
  v1::StacksRequest wanted_;
  core::AttemptKey attempt_;
  std::optional<google::protobuf::RepeatedPtrField<v1::RankStack>> ranks_;  // once they are all there
  int at_ = 0;                                                              // in ranks_
};

}  // namespace

std::unique_ptr<Source<v1::JobMetrics>> sweep_metrics_source(service::Controller& controller,
                                                             const v1::SweepMetricsRequest& request) {
  return std::make_unique<SweepMetricsSource>(controller, request);
}

std::unique_ptr<Source<v1::StacksView>> stacks_source(service::Controller& controller,
                                                      const v1::StacksRequest& request) {
  return std::make_unique<StacksSource>(controller, request);
}

std::unique_ptr<Source<v1::Job>> watch_source(service::Controller& controller, const v1::GetRequest& request) {
  return std::make_unique<StateSource<v1::Job>>(
      StateSource<v1::Job>::Rules{[&controller, job = request.job_id()] { return controller.get(job); },
                                  [](const v1::Job& job) { return is_ended_job(job.state()); }, fingerprint});
}

std::unique_ptr<Source<v1::TraceView>> trace_source(service::Controller& controller, const v1::TraceRequest& request) {
  return std::make_unique<StateSource<v1::TraceView>>(StateSource<v1::TraceView>::Rules{
      // Asked again and again: the same number is one request.
      [&controller, &request] { return controller.trace(request); },
      [&request](const v1::TraceView& trace) { return !request.follow() || trace.state() == "over"; },
      &v1::TraceView::SerializeAsString});
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
  const auto ended = [&controller, job, attempt]() -> common::Outcome<bool> {
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
