#pragma once

#include <algorithm>
#include <atomic>
#include <condition_variable>
#include <filesystem>
#include <map>
#include <mutex>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/controller/unscripted_controller.h"

namespace rpc::testing {

/// A controller made of a few maps, for tests of the gRPC server and of the worker's client. Thread-safe.
class FakeController : public test::UnscriptedController {
 public:
  static constexpr const char* kPeopleToken = "people-token";
  static constexpr const char* kRankToken = "rank-token";

  // Tests set up and read these.

  void put(const muster::v1::Job& job) {
    change([&] { jobs_[job.id()] = job; });
  }
  /// A running job with one attempt.
  void put_running(core::JobId id, std::uint32_t ranks = 1) {
    muster::v1::Job job;
    job.set_id(id);
    job.set_state("running");
    job.mutable_spec()->mutable_resources()->set_nodes(1);
    job.mutable_spec()->mutable_resources()->set_ranks_per_node(ranks);
    job.set_ranks_total(ranks);
    auto* attempt = job.add_attempts();
    attempt->set_number(1);
    attempt->set_state("running");
    put(job);
  }
  void update(core::JobId id, const std::function<void(muster::v1::Job&)>& edit) {
    change([&] { edit(jobs_[id]); });
  }
  void add_event(core::JobId job, std::int64_t id) {
    change([&] {
      muster::v1::Event event;
      event.set_id(id);
      event.set_job_id(job);
      events_.push_back(event);
    });
  }
  void add_metric(std::uint32_t attempt, std::int64_t step, const std::map<std::string, double>& series = {}) {
    change([&] {
      muster::v1::Metric metric;
      metric.set_attempt(attempt);
      metric.set_step(step);
      metric.mutable_series()->insert(series.begin(), series.end());
      metrics_.push_back(metric);
    });
  }
  /// The steps before this one have aged out, and `points` is left of all.
  void let_age(core::Step before, store::Thinned points) {
    change([&] {
      std::erase_if(metrics_, [&](const auto& metric) { return metric.step() < before; });
      metrics_.front().set_aged_before_step(before);
      left_ = std::move(points);
    });
  }
  void touch() {
    change([] {});
  }
  void set_log_folder(std::filesystem::path folder) { log_folder_ = std::move(folder); }
  void set_directive(muster::v1::Directive directive) {
    change([&] { directive_ = directive; });
  }
  /// Tells every task that has a stream, whatever it is waiting for.
  void push(const muster::v1::TaskResponse& answer) {
    std::lock_guard lock(mutex_);
    for (const auto& [_, tell] : task_tellers_) tell(answer);
  }
  /// Sets the trace that ranks are asked to record, with each answer on a stream.
  void set_trace_wish(std::optional<muster::v1::TraceWish> wish) {
    change([&] { trace_wish_ = std::move(wish); });
  }
  /// Sets the answer to people who ask for a trace.
  void set_trace(const muster::v1::TraceView& trace) {
    change([&] { trace_ = trace; });
  }
  void set_stacks(const muster::v1::StacksView& stacks) {
    change([&] { stacks_ = stacks; });
  }
  void set_stop_why(std::string why, std::chrono::milliseconds grace) {
    change([&] { stop_why_ = std::move(why), stop_grace_ = grace; });
  }
  void set_rank_refusal(std::optional<common::Refusal> refusal) {
    change([&] { rank_refusal_ = std::move(refusal); });
  }
  void set_people_refusal(std::optional<common::Refusal> refusal) {
    change([&] { people_refusal_ = std::move(refusal); });
  }
  /// Heartbeats with this step are invalid.
  void refuse_step(core::Step step) { refused_step_ = step; }
  /// Accepts only the first `most` metrics of each heartbeat.
  void set_most_accepted(int most) { most_accepted_ = most; }
  void set_interval(core::Millis interval) { interval_ = interval; }
  std::atomic<bool> store_broken{false};

  /// Waits, at most ten seconds, until `condition` holds under the lock.
  bool wait_until(const std::function<bool(const FakeController&)>& condition) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, std::chrono::seconds(10), [&] { return condition(*this); });
  }

  // Read these inside wait_until(), or after all calls have ended.
  int registers = 0;
  std::map<core::RankNumber, int> heartbeats;
  std::map<core::RankNumber, muster::v1::HeartbeatRequest> last_heartbeat;
  std::map<core::RankNumber, muster::v1::ProgramWords> last_program;
  std::map<core::RankNumber, muster::v1::TraceReport> last_trace;
  std::map<core::RankNumber, std::map<core::Step, int>> steps;  // how often each step was delivered
  std::map<core::RankNumber, std::vector<core::Step>> order;
  std::set<core::Step> checkpoints;
  std::map<core::RankNumber, std::pair<int, std::string>> left;
  std::set<std::string> rank_tokens;
  int streams_opened = 0, streams_closed = 0;
  int task_streams_opened = 0, task_streams_closed = 0;
  int stacks_asked = 0;
  int largest_batch = 0;
  int refused_batches = 0;
  int refusals = 0;
  /// The requests of people, in order: "hold 7 by ben".
  std::vector<std::string> asked;
  std::vector<muster::v1::TaskRequest> tasks;

  // Controller

  common::Outcome<muster::v1::SubmitResponse> submit(const muster::v1::SubmitRequest&) override {
    std::lock_guard lock(mutex_);
    if (store_broken) throw std::runtime_error("the disk is full: free some space");
    if (people_refusal_) return *people_refusal_;
    muster::v1::SubmitResponse response;
    response.set_job_id(41);
    return response;
  }
  muster::v1::ListResponse list(const muster::v1::ListRequest& request) override {
    muster::v1::ListResponse response;
    response.set_total(request.limit());
    if (request.sweep().empty()) return response;
    std::lock_guard lock(mutex_);
    for (auto job = jobs_.rbegin(); job != jobs_.rend(); ++job) {
      const bool older = request.before_id() == 0 || job->first < request.before_id();
      if (older && job->second.sweep().sweep() == request.sweep()) *response.add_jobs() = job->second;
      if (response.jobs_size() == static_cast<int>(request.limit())) break;
    }
    return response;
  }
  common::Outcome<muster::v1::JobSpec> spec(core::JobId id) override {
    const auto job = get(id);
    if (!job.ok()) return job.refusal();
    return job.value().spec();
  }
  common::Outcome<muster::v1::Job> get(core::JobId id) override {
    std::lock_guard lock(mutex_);
    if (people_refusal_) return *people_refusal_;
    const auto found = jobs_.find(id);
    if (found == jobs_.end()) {
      return common::Refusal{common::Refusal::Kind::kNotFound, "no job " + std::to_string(id)};
    }
    return found->second;
  }
  common::Outcome<muster::v1::Job> cancel(core::JobId id, const std::string&) override { return get(id); }
  common::Outcome<muster::v1::Job> requeue(core::JobId id, const std::string&) override { return get(id); }
  common::Outcome<muster::v1::Job> hold(core::JobId id, const std::string& user) override {
    return note("hold " + std::to_string(id) + " by " + user, id);
  }
  common::Outcome<muster::v1::Job> release(core::JobId id, const std::string& user) override {
    return note("release " + std::to_string(id) + " by " + user, id);
  }
  common::Outcome<muster::v1::Job> set_time_limit(core::JobId id, core::Millis limit,
                                                  const std::string& user) override {
    return note("limit " + std::to_string(id) + " to " + std::to_string(limit.count()) + " by " + user, id);
  }
  common::Outcome<muster::v1::SubmitSweepResponse> submit_sweep(
      const muster::v1::SubmitSweepRequest& request) override {
    std::lock_guard lock(mutex_);
    if (store_broken) throw std::runtime_error("the disk is full: free some space");
    if (people_refusal_) return *people_refusal_;
    muster::v1::SubmitSweepResponse response;
    response.set_sweep("s41");
    for (int i = 0; i < request.specs_size(); ++i) response.add_job_ids(41 + i);
    return response;
  }
  common::Outcome<muster::v1::ChangeSweepResponse> change_sweep(
      const muster::v1::ChangeSweepRequest& request) override {
    change([&] { asked.push_back(muster::v1::SweepChange_Name(request.change()) + " " + request.sweep()); });
    return muster::v1::ChangeSweepResponse{};
  }
  common::Outcome<muster::v1::TraceView> trace(const muster::v1::TraceRequest& request) override {
    std::lock_guard lock(mutex_);
    if (!trace_) return common::Refusal::no_job(request.job_id());
    auto view = *trace_;
    view.set_number(request.number());
    return view;
  }
  common::Outcome<muster::v1::StacksView> stacks(const muster::v1::StacksRequest& request) override {
    std::lock_guard lock(mutex_);
    if (!stacks_) return common::Refusal::no_job(request.job_id());
    if (request.ask()) ++stacks_asked;
    return *stacks_;
  }
  std::string stack_text(const core::AttemptKey&, std::uint64_t number, core::RankNumber rank) override {
    return "stack " + std::to_string(rank) + " of set " + std::to_string(number);
  }
  common::Outcome<muster::v1::WhyResponse> why(core::JobId id) override {
    const auto job = get(id);
    if (!job.ok()) return job.refusal();
    muster::v1::WhyResponse response;
    response.set_job_id(id);
    response.set_reason("because");
    return response;
  }
  common::Outcome<muster::v1::TaskResponse> task(const muster::v1::TaskRequest& request,
                                                 const std::string& token) override {
    std::lock_guard lock(mutex_);
    if (auto refusal = refuse_rank(token)) return *refusal;
    tasks.push_back(request);
    changed_.notify_all();
    muster::v1::TaskResponse response;
    response.set_directive(directive_);
    response.set_interval_ms(interval_.load().count());
    response.set_stop_why(stop_why_);
    response.set_stop_grace_ms(stop_grace_.count());
    return response;
  }
  std::vector<muster::v1::Event> events(core::JobId job, std::int64_t after_id, std::uint32_t limit) override {
    std::lock_guard lock(mutex_);
    std::vector<muster::v1::Event> page;
    for (const auto& event : events_) {
      if (event.id() > after_id && (job == 0 || event.job_id() == job) && page.size() < limit) page.push_back(event);
    }
    return page;
  }
  store::Totals totals(std::int64_t, std::uint32_t) override { return {}; }
  std::int64_t last_event_id() override { return 0; }
  std::vector<muster::v1::Metric> metrics(core::JobId, core::AttemptNumber attempt, core::AttemptNumber after_attempt,
                                          core::Step after_step, std::uint32_t limit) override {
    std::lock_guard lock(mutex_);
    std::vector<muster::v1::Metric> page;
    for (const auto& m : metrics_) {
      const bool later = m.attempt() > after_attempt || (m.attempt() == after_attempt && m.step() > after_step);
      if (later && (attempt == 0 || m.attempt() == attempt) && page.size() < limit) page.push_back(m);
    }
    return page;
  }
  store::Thinned thinned(const store::ThinRequest&) override {
    std::lock_guard lock(mutex_);
    return left_;
  }
  std::string log_path(core::JobId, core::AttemptNumber attempt, core::RankNumber rank) override {
    return log_folder_ / ("attempt-" + std::to_string(attempt) + "-rank-" + std::to_string(rank) + ".log");
  }
  std::string scheduler_log_path(core::JobId, core::AttemptNumber attempt) override {
    return log_folder_ / ("attempt-" + std::to_string(attempt) + "-slurm.log");
  }
  muster::v1::StatusResponse status() override {
    if (store_broken) throw std::runtime_error("the disk is full: free some space");
    muster::v1::StatusResponse response;
    response.set_version("test");
    return response;
  }
  std::uint64_t wait_change(core::JobId, std::uint64_t seen, core::Millis timeout) override {
    std::unique_lock lock(mutex_);
    changed_.wait_for(lock, timeout, [&] { return changes_ > seen; });
    return changes_;
  }

  common::Outcome<muster::v1::RegisterResponse> register_rank(const muster::v1::RegisterRequest&,
                                                              const std::string& token) override {
    std::lock_guard lock(mutex_);
    if (auto refusal = refuse_rank(token)) return *refusal;
    ++registers;
    muster::v1::RegisterResponse response;
    response.set_directive(directive_);
    response.set_heartbeat_interval_ms(interval_.load().count());
    return response;
  }
  common::Outcome<muster::v1::HeartbeatResponse> heartbeat(const muster::v1::HeartbeatRequest& request,
                                                           const std::string& token) override {
    muster::v1::HeartbeatResponse response;
    std::optional<common::Refusal> refusal;
    change([&] {
      refusal = refuse_rank(token);
      for (const auto& m : request.metrics()) {
        if (m.step() != refused_step_) continue;
        refusal = common::Refusal{common::Refusal::Kind::kInvalid, "such a step is not wanted"};
        ++refused_batches;
      }
      if (refusal) return;
      const auto rank = request.key().rank();
      ++heartbeats[rank];
      last_heartbeat[rank] = request;
      if (request.has_program()) last_program[rank] = request.program();
      if (request.has_trace()) last_trace[rank] = request.trace();
      largest_batch = std::max(largest_batch, request.metrics_size());
      const int taken = std::min(request.metrics_size(), most_accepted_.load());
      for (int i = 0; i < taken; ++i) {
        ++steps[rank][request.metrics(i).step()];
        order[rank].push_back(request.metrics(i).step());
      }
      for (const auto& c : request.checkpoints()) checkpoints.insert(c.step());
      if (request.leaving()) left[rank] = {request.exit_code(), request.leaving_reason()};
      response.set_directive(directive_);
      response.set_heartbeat_interval_ms(interval_.load().count());
      response.set_metrics_accepted(static_cast<std::uint32_t>(taken));
      response.set_checkpoints_accepted(static_cast<std::uint32_t>(request.checkpoints_size()));
    });
    if (refusal) return *refusal;
    return response;
  }
  /// Answers each request of the stream at once, as heartbeat() does.
  common::Outcome<std::shared_ptr<ranks::RankStream>> open_stream(const muster::v1::RankKey& key,
                                                                  const std::string& token,
                                                                  ranks::TellRank tell) override {
    change([&] { ++streams_opened; });
    return std::shared_ptr<ranks::RankStream>(std::make_shared<Stream>(*this, key, token, std::move(tell)));
  }
  /// Answers when it is asked to, or has another directive to tell.
  common::Outcome<std::shared_ptr<ranks::TaskStream>> open_task_stream(const muster::v1::RankKey& key,
                                                                       const std::string& token,
                                                                       ranks::TellTask tell) override {
    std::lock_guard lock(mutex_);
    ++task_streams_opened;
    if (auto refusal = refuse_rank(token)) return *refusal;
    auto stream = std::make_shared<Tasks>(*this, key, token, tell);
    task_tellers_[stream.get()] = std::move(tell);
    return std::shared_ptr<ranks::TaskStream>(stream);
  }
  common::Outcome<muster::v1::RendezvousResponse> rendezvous(const muster::v1::RendezvousRequest& request,
                                                             const std::string& token) override {
    std::lock_guard lock(mutex_);
    if (auto refusal = refuse_rank(token)) return *refusal;
    auto& endpoint = endpoints_[{request.key().job_id(), request.key().attempt()}];
    if (!request.endpoint().empty()) endpoint = request.endpoint();
    muster::v1::RendezvousResponse response;
    response.set_endpoint(endpoint);
    response.set_directive(directive_);
    return response;
  }

  bool is_people_token(const std::string& token) const override { return token == kPeopleToken; }
  bool is_rank_token(const core::AttemptKey&, const std::string& token) const override { return token == kRankToken; }

 private:
  class Stream : public ranks::RankStream {
   public:
    Stream(FakeController& controller, const muster::v1::RankKey& key, std::string token, ranks::TellRank tell)
        : controller_(controller), key_(key), token_(std::move(token)), tell_(std::move(tell)) {}
    common::Outcome<bool> beat(const muster::v1::HeartbeatRequest& request) override {
      auto with_key = request;
      *with_key.mutable_key() = key_;
      const auto said = controller_.heartbeat(with_key, token_);
      if (!said.ok()) return said.refusal();
      muster::v1::BeatResponse answer;
      answer.set_directive(said.value().directive());
      answer.set_heartbeat_interval_ms(said.value().heartbeat_interval_ms());
      answer.set_metrics_durable(request.first_metric() + said.value().metrics_accepted());
      answer.set_checkpoints_durable(request.first_checkpoint() + said.value().checkpoints_accepted());
      answer.set_store_waits(static_cast<int>(said.value().metrics_accepted()) < request.metrics_size());
      answer.set_requests_heard(++heard_);
      controller_.change([&] {
        if (controller_.trace_wish_) *answer.mutable_trace() = *controller_.trace_wish_;
      });
      std::lock_guard lock(mutex_);
      if (tell_) tell_(answer);
      return false;
    }
    void work() override {}
    void close() override {
      {
        std::lock_guard lock(mutex_);
        tell_ = nullptr;
      }
      controller_.change([&] { ++controller_.streams_closed; });
    }

   private:
    FakeController& controller_;
    const muster::v1::RankKey key_;
    const std::string token_;
    std::uint64_t heard_ = 0;
    std::mutex mutex_;
    ranks::TellRank tell_;
  };
  class Tasks : public ranks::TaskStream {
   public:
    Tasks(FakeController& controller, const muster::v1::RankKey& key, std::string token, ranks::TellTask tell)
        : controller_(controller), key_(key), token_(std::move(token)), tell_(std::move(tell)) {}
    common::Outcome<bool> beat(const muster::v1::TaskRequest& request) override {
      auto with_key = request;
      if (!request.has_key()) *with_key.mutable_key() = key_;
      auto said = controller_.task(with_key, token_);
      if (!said.ok()) return said.refusal();
      said.value().set_requests_heard(++heard_);
      if (request.answer_soon() || std::exchange(told_, said.value().directive()) != said.value().directive()) {
        tell_(said.value());
      }
      return false;
    }
    void close() override {
      controller_.change([&] {
        controller_.task_tellers_.erase(this);
        ++controller_.task_streams_closed;
      });
    }

   private:
    FakeController& controller_;
    const muster::v1::RankKey key_;
    const std::string token_;
    const ranks::TellTask tell_;
    std::uint64_t heard_ = 0;
    muster::v1::Directive told_ = muster::v1::DIRECTIVE_CONTINUE;
  };
  template <typename Edit>
  void change(const Edit& edit) {
    {
      std::lock_guard lock(mutex_);
      edit();
      ++changes_;
    }
    changed_.notify_all();
  }
  common::Outcome<muster::v1::Job> note(const std::string& what, core::JobId id) {
    change([&] { asked.push_back(what); });
    return get(id);
  }
  std::optional<common::Refusal> refuse_rank(const std::string& token) {
    rank_tokens.insert(token);
    if (token != kRankToken) return common::Refusal{common::Refusal::Kind::kUnauthenticated, "not this attempt's"};
    if (rank_refusal_) ++refusals;
    return rank_refusal_;
  }

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t changes_ = 1;
  std::map<core::JobId, muster::v1::Job> jobs_;
  std::vector<muster::v1::Event> events_;
  std::vector<muster::v1::Metric> metrics_;
  store::Thinned left_;
  std::filesystem::path log_folder_;
  std::map<core::AttemptKey, std::string> endpoints_;
  std::map<const void*, ranks::TellTask> task_tellers_;
  muster::v1::Directive directive_ = muster::v1::DIRECTIVE_CONTINUE;
  std::optional<muster::v1::TraceWish> trace_wish_;
  std::optional<muster::v1::TraceView> trace_;
  std::optional<muster::v1::StacksView> stacks_;
  std::string stop_why_;
  std::chrono::milliseconds stop_grace_{0};
  std::optional<common::Refusal> rank_refusal_, people_refusal_;
  std::atomic<core::Step> refused_step_{-1};
  std::atomic<int> most_accepted_{1'000'000};
  std::atomic<core::Millis> interval_{core::Millis(20)};
};

}  // namespace rpc::testing
