#include "controller/service/controller_impl.h"

#include <spdlog/spdlog.h>
#include <atomic>

#include "agent/protocol/files.h"
#include "controller/common/changes.h"
#include "controller/common/data_folder.h"
#include "controller/common/hearing.h"
#include "controller/common/loop.h"
#include "controller/common/tokens.h"
#include "controller/core/core_text.h"
#include "controller/jobs/event_log.h"
#include "controller/jobs/job_remover.h"
#include "controller/jobs/output_watch.h"
#include "controller/jobs/progress_watch.h"
#include "controller/ranks/rank_sessions.h"
#include "controller/service/draining.h"
#include "controller/service/job_changes.h"
#include "controller/service/parts.h"
#include "controller/service/reconciler.h"
#include "controller/service/stack_requests.h"
#include "controller/service/status_page.h"
#include "controller/service/submission.h"
#include "controller/service/trace_requests.h"
#include "controller/service/views.h"

namespace service {
namespace {

namespace v1 = muster::v1;
using common::Outcome;

/// Between two words that tell how late heartbeats are read.
constexpr core::Millis kProbeReading{500};
/// Rows of metrics that one transaction lets age, and the pauses after it, so that other writes get their turn: when
/// more is due, and when nothing is.
constexpr std::uint32_t kRowsAgedAtOnce = 5000;
constexpr core::Millis kMoreIsDue{20}, kNothingIsDue{60'000};
/// The most of a reported trace that is kept.
constexpr std::size_t kMostTrace = 8'000;

/// Adds the words of an ended rank's program about itself. The program's own word on an error says more than the guess
/// from the end of its log. But of ranks that share a log, as those of torchrun, one alone reports: what it says of a
/// lost connection gives way to the first cause in the log.
void add_words(const v1::ProgramWords& words, core::RankExited& exited) {
  exited.status = words.status();
  exited.bad_lines = words.bad_lines();
  exited.first_bad_line = words.first_bad_line();
  exited.source_trouble = words.source_trouble();
  const bool failed = exited.exit != core::ExitStatus{};
  if (!failed || !words.has_error()) return;
  const auto& error = words.error();
  const auto told = core::error_text(error.type(), error.message());
  const bool log_knows = core::is_surely_an_error(exited.error) && !agent::protocol::is_of_a_survivor(exited.error);
  if (agent::protocol::is_of_a_survivor(told) && log_knows) return;
  exited.error = told;
  exited.trace = error.trace().substr(0, kMostTrace);
}

/// The job's attempt is in a scheduler's hands.
bool is_in_scheduler(const core::Job& job) {
  const auto* attempt = job.current();
  return attempt != nullptr && attempt->scheduler_job && attempt->state != core::AttemptState::kEnded;
}

class Impl final : public RunningController {
 public:
  Impl(store::Store& store, executors::Executor& executor, common::Clock& clock, ControllerOptions options)
      : store_(store),
        executor_(executor),
        clock_(clock),
        options_(std::move(options)),
        data_(options_.data_folder),
        secret_(store.secret()),
        hearing_(clock),
        probe_(hearing_, clock, data_.disk_probe(), options_.threads),
        reading_(clock),
        specs_(store),
        newest_(store),
        metrics_(store, hearing_, newest_, options_.threads),
        partitions_({store, executor, clock, specs_,
                     [this](const auto& partition, const auto& user) {
                       const auto count = admission_.count(partition, user);
                       return partitions::Partitions::Jobs{count.taken, count.waiting, count.open};
                     },
                     options_.why_no_slurm, options_.excluded_for, [this] { return scheduler_has_attempts(); },
                     [this] {
                       if (started_) runner_.reconsider();
                     }},
                    options_.partitions_file, options_.threads),
        draining_(store),
        admission_(
            {clock, specs_, executor, [this] { return partitions_.policies(); }, [this] { return draining_.order(); }}),
        event_log_(
            store, clock, hearing_, [this](const jobs::JobPtr& job, bool actions) { publish(job, actions); },
            options_.threads),
        dependencies_(event_log_),
        progress_(event_log_, specs_, data_, options_.threads),
        output_(
            specs_, data_, [this](const auto& key) { live_ranks_.came_out(key, clock_.monotonic()); },
            options_.threads),
        runner_({store, executor, clock, event_log_, specs_, admission_, partitions_, options_.excluded_for,
                 [this](const core::AttemptKey& key, core::Millis interval) {
                   return live_ranks_.leave_step(key, interval, clock_.monotonic());
                 }},
                options_.threads),
        sessions_({clock, executor, event_log_, metrics_, live_ranks_, specs_, changes_, hearing_, pace_}, data_,
                  secret_, options_.threads),
        remover_({store, event_log_, data_, options_.scheduler_log}, options_.threads),
        parts_{store,       executor,   clock,   event_log_, specs_,  newest_, live_ranks_,
               partitions_, admission_, runner_, data_,      secret_, options_},
        submission_(parts_),
        views_(parts_),
        job_changes_(parts_, views_),
        traces_(parts_,
                [this](const core::AttemptKey& key) {
                  sessions_.tell_trace(key);
                  changes_.bump(key.job);
                }),
        stacks_(
            parts_, [this](const core::AttemptKey& key) { sessions_.tell_stacks(key); },
            [this](core::JobId job) { changes_.bump(job); }, options_.threads),
        status_(parts_, {draining_, metrics_, hearing_, probe_, reading_, pace_, sessions_.streams()}),
        ageing_(
            "ageing", "old metrics could not be thinned out", options_.threads,
            [this] { return store_.age_metrics(options_.metrics_keep, kRowsAgedAtOnce) ? kMoreIsDue : kNothingIsDue; }),
        ticker_("watch", "ranks could not be watched this time", options_.threads, [this] {
          watch();
          return until_next_watch();
        }) {
    event_log_.load_open();
    event_log_.begin_after(data_.newest_job_folder());
    for (const auto& job : event_log_.open_jobs()) {
      specs_.follow(*job);
      admission_.follow(*job);
      dependencies_.follow(*job);
    }
  }

  ~Impl() override { leave(&jobs::EventLog::close); }

  void start(const Addresses& addresses) override {
    status_.set_dashboard(addresses.dashboard);
    executor_.set_history([this](const core::AttemptKey& key) { return is_over(key); });
    executor_.set_lost_nodes([this] { return runner_.nodes_lost_lately(); });
    executor_.set_machine_sink([this] {
      admission_.look_at_machine(event_log_.open_jobs());
      runner_.reconsider();
    });
    executor_.start([this](core::JobId job, core::EventBody body) { take_fact(job, std::move(body)); });
    started_ = true;
    status_.look_at_store();
    partitions_.start();
    if (take_over_attempts(parts_)) pace_.restarted(clock_.monotonic());
    sessions_.search_unsent(attempts_that_are_over());
    runner_.start({data_, options_.worker_program, addresses.grpc, secret_});
    remover_.start();
    ageing_.start(kNothingIsDue);
    ticker_.start(options_.tick_interval);
  }

  void begin_to_leave() override {
    leaving_ = true;
    ticker_.stop();
    ageing_.stop();
    runner_.stop_taking();
    remover_.stop_taking();
  }
  void stop() override { leave(&jobs::EventLog::drain); }

  std::optional<core::Millis> tick() override {
    std::optional<core::Millis> pause;
    // Twice: what the first round finds out may ask for something at once.
    for (int round = 0; round < 2; ++round) {
      event_log_.pump();
      pause = runner_.poll();
      remover_.poll();
      stacks_.poll();
      if (round == 0) watch();
      if (round == 0) partitions_.poll();
    }
    const auto watch_pause = until_next_watch();
    return pause && watch_pause ? std::min(pause, watch_pause) : pause ? pause : watch_pause;
  }

  Outcome<v1::SubmitResponse> submit(const v1::SubmitRequest& request) override { return submission_.submit(request); }
  v1::ListResponse list(const v1::ListRequest& request) override { return views_.list(request); }
  Outcome<v1::Job> get(core::JobId id) override { return views_.get(id); }
  Outcome<v1::JobSpec> spec(core::JobId id) override { return views_.spec(id); }
  Outcome<v1::Job> cancel(core::JobId id, const std::string& user) override {
    return job_changes_.ask(id, core::CancelRequested{user_or_unknown(user)});
  }
  Outcome<v1::Job> requeue(core::JobId id, const std::string& user) override {
    return job_changes_.ask(id, core::RequeueRequested{user_or_unknown(user)});
  }
  Outcome<v1::Job> hold(core::JobId id, const std::string& user) override {
    return job_changes_.ask(id, core::HoldRequested{user_or_unknown(user)});
  }
  Outcome<v1::Job> release(core::JobId id, const std::string& user) override {
    return job_changes_.ask(id, core::ReleaseRequested{user_or_unknown(user)});
  }
  Outcome<v1::Job> set_time_limit(core::JobId id, core::Millis limit, const std::string& user) override {
    return job_changes_.set_time_limit(id, limit, user);
  }
  Outcome<v1::SubmitSweepResponse> submit_sweep(const v1::SubmitSweepRequest& request) override {
    return submission_.submit_sweep(request);
  }
  Outcome<v1::ChangeSweepResponse> change_sweep(const v1::ChangeSweepRequest& request) override {
    return job_changes_.change_sweep(request);
  }
  Outcome<v1::RemoveResponse> remove(const v1::RemoveRequest& request) override { return job_changes_.remove(request); }
  Outcome<v1::WhyResponse> why(core::JobId id) override { return views_.why(id); }
  Outcome<v1::TraceView> trace(const v1::TraceRequest& request) override { return traces_.ask(request); }
  Outcome<v1::StacksView> stacks(const v1::StacksRequest& request) override { return stacks_.get(request); }
  std::string stack_text(const core::AttemptKey& attempt, std::uint64_t number, core::RankNumber rank) override {
    return stacks_.text(attempt, number, rank);
  }
  Outcome<v1::PlanScriptResponse> plan_script(const v1::PlanScriptRequest& request) override {
    return submission_.plan_script(request);
  }
  Outcome<v1::CheckScriptResponse> check_script(const v1::PlanScriptRequest& request) override {
    return submission_.check_script(request);
  }
  Outcome<v1::ListPartitionsResponse> list_partitions(const v1::ListPartitionsRequest& request) override {
    return partitions_.list(request);
  }
  Outcome<v1::PartitionView> set_partition(const v1::SetPartitionRequest& request) override {
    return partitions_.set(request);
  }
  Outcome<v1::RemovePartitionResponse> remove_partition(const v1::RemovePartitionRequest& request) override {
    return partitions_.remove(request);
  }
  Outcome<v1::ListNodesResponse> list_nodes() override {
    auto nodes = partitions_.nodes();
    const auto names = executor_.names();
    const bool has_slurm = std::ranges::find(names, "slurm") != names.end();
    if (!nodes.ok() && has_slurm) return nodes;
    v1::ListNodesResponse response = nodes.ok() ? nodes.value() : v1::ListNodesResponse();
    *response.mutable_machine() = machine();
    return response;
  }
  v1::MachineView machine() override { return admission_.machine(); }
  Outcome<v1::DrainView> drain(const v1::DrainRequest& request) override { return draining_.begin(parts_, request); }
  Outcome<v1::DrainView> resume(const v1::ResumeRequest& request) override { return draining_.end(parts_, request); }
  v1::ListAuditResponse list_audit(const v1::ListAuditRequest& request) override { return partitions_.audit(request); }
  std::vector<v1::Event> events(core::JobId job, std::int64_t after_id, std::uint32_t limit) override {
    std::vector<v1::Event> out;
    for (const auto& event : store_.events(job, after_id, limit)) out.push_back(event_view(event));
    return out;
  }
  std::int64_t last_event_id() override { return store_.last_event_id(); }
  store::Totals totals(std::int64_t after_event, std::uint32_t most) override {
    return store_.totals(after_event, most);
  }
  std::vector<v1::Metric> metrics(core::JobId id, core::AttemptNumber attempt, core::AttemptNumber after_attempt,
                                  core::Step after_step, std::uint32_t limit) override {
    std::vector<v1::Metric> out;
    for (const auto& row : store_.metrics(id, attempt, after_attempt, after_step, limit)) {
      out.push_back(metric_view(row));
    }
    return out;
  }
  store::Thinned thinned(const store::ThinRequest& request) override { return store_.thinned(request); }
  std::string log_path(core::JobId id, core::AttemptNumber attempt, core::RankNumber rank) override {
    return views_.log_path(id, attempt, rank);
  }
  std::string scheduler_log_path(core::JobId id, core::AttemptNumber attempt) override {
    return views_.scheduler_log_path(id, attempt);
  }
  v1::StatusResponse status() override { return status_.get(); }
  std::uint64_t wait_change(core::JobId job, std::uint64_t seen, core::Millis timeout) override {
    return changes_.wait(job, seen, timeout);
  }
  std::uint64_t newest_change(core::JobId job) override { return changes_.newest(job); }

  Outcome<v1::RegisterResponse> register_rank(const v1::RegisterRequest& request, const std::string& token) override {
    return sessions_.register_rank(request, token);
  }
  Outcome<v1::HeartbeatResponse> heartbeat(const v1::HeartbeatRequest& request, const std::string& token) override {
    return sessions_.heartbeat(request, token);
  }
  Outcome<std::shared_ptr<ranks::RankStream>> open_stream(const v1::RankKey& key, const std::string& token,
                                                          ranks::TellRank tell) override {
    return sessions_.open(key, token, std::move(tell));
  }
  Outcome<std::shared_ptr<ranks::TaskStream>> open_task_stream(const v1::RankKey& key, const std::string& token,
                                                               ranks::TellTask tell) override {
    return sessions_.open_task(key, token, std::move(tell));
  }
  common::Reading* reading() override { return &reading_; }
  Outcome<v1::RendezvousResponse> rendezvous(const v1::RendezvousRequest& request, const std::string& token) override {
    return sessions_.rendezvous(request, token);
  }
  Outcome<v1::TaskResponse> task(const v1::TaskRequest& request, const std::string& token) override {
    return sessions_.task(request, token);
  }
  Outcome<v1::KeepStackResponse> keep_stack(const v1::KeepStackRequest& request, const std::string& token) override {
    const auto there = sessions_.is_there(request.key(), token);
    return there.ok() ? stacks_.take(request) : Outcome<v1::KeepStackResponse>(there.refusal());
  }
  bool is_people_token(const std::string& token) const override {
    return !options_.people_token.empty() && common::same_secret(token, options_.people_token);
  }
  bool is_rank_token(const core::AttemptKey& attempt, const std::string& token) const override {
    return common::same_secret(token, common::rank_token(secret_, attempt.job, attempt.number));
  }
  std::uint32_t ranks_of(core::JobId id) const override {
    const auto job = event_log_.job_in_memory(id);
    return job == nullptr ? 0 : job->world_size;
  }

 private:
  bool is_over(const core::AttemptKey& key) const;
  /// Ended attempts of the newest jobs.
  std::vector<core::AttemptKey> attempts_that_are_over();
  void publish(const jobs::JobPtr& job, bool has_actions);
  void take_fact(core::JobId job, core::EventBody body);
  core::Step newest_step(core::JobId job, const core::RankExited& exited) const;
  ranks::LiveRanks::Round round(bool deaf);
  void watch();
  std::optional<core::Millis> until_next_watch();
  bool scheduler_has_attempts() const;
  void leave(void (jobs::EventLog::*end_events)());

  store::Store& store_;
  executors::Executor& executor_;
  common::Clock& clock_;
  const ControllerOptions options_;
  // Before the parts, which may ask while they are made.
  std::atomic<bool> started_{false};
  std::atomic<bool> leaving_{false};
  std::atomic<bool> rests_{false};  // the watch sleeps until something happens
  const common::DataFolder data_;
  const std::string secret_;
  common::Changes changes_;
  common::Hearing hearing_;
  common::DiskProbe probe_;
  common::Reading reading_;
  ranks::Pace pace_;
  ranks::LiveRanks live_ranks_;
  jobs::SpecCache specs_;
  ranks::NewestMetrics newest_;
  ranks::MetricsWriter metrics_;
  partitions::Partitions partitions_;
  Draining draining_;
  admission::Admission admission_;
  jobs::EventLog event_log_;
  jobs::Dependencies dependencies_;
  jobs::ProgressWatch progress_;
  jobs::OutputWatch output_;
  actions::ActionRunner runner_;
  ranks::RankSessions sessions_;
  jobs::JobRemover remover_;
  const Parts parts_;
  Submission submission_;
  Views views_;
  JobChanges job_changes_;
  TraceRequests traces_;
  StackRequests stacks_;
  StatusPage status_;

  common::Loop ageing_;
  common::Loop ticker_;
};

bool Impl::is_over(const core::AttemptKey& key) const {
  const auto job = event_log_.job(key.job);
  if (job == nullptr) return false;  // another's, or one whose store was taken away: not ours to judge
  if (key.number == 0 || key.number > job->attempts.size()) return core::is_ended(job->state);
  return job->attempts[key.number - 1].state == core::AttemptState::kEnded;
}

std::vector<core::AttemptKey> Impl::attempts_that_are_over() {
  std::vector<core::AttemptKey> keys;
  try {
    store::ListFilter filter;
    filter.limit = kListMost;
    for (const auto& row : store_.list(filter)) {
      if (!row.newest_attempt) continue;
      const bool over = row.newest_attempt->state == core::AttemptState::kEnded;
      const auto last = row.newest_attempt->number - (over ? 0 : 1);
      for (core::AttemptNumber number = 1; number <= last; ++number) keys.push_back({row.id, number});
    }
  } catch (const std::exception& e) {
    spdlog::warn("what ranks left unsent is not looked for: {}", e.what());
  }
  return keys;
}

// Writer's thread.
void Impl::publish(const jobs::JobPtr& job, bool has_actions) {
  specs_.follow(*job);
  const auto now = clock_.monotonic();
  const auto* attempt = job->current();
  if (attempt != nullptr && attempt->state != core::AttemptState::kEnded) {
    try {
      if (const auto spec = specs_.get(job->id)) {
        live_ranks_.track({job->id, attempt->number}, ranks::liveness_rules(*spec), job->world_size, now, now);
      }
    } catch (const std::exception& e) {
      spdlog::error("job {} is not watched: {}", job->id, e.what());
    }
  }
  live_ranks_.follow(*job, now);
  sessions_.follow(*job);
  admission_.follow(*job);
  dependencies_.follow(*job);
  changes_.bump(job->id);
  if (has_actions) {
    runner_.wake();
  } else {
    runner_.reconsider();
  }
  if (has_actions && job->removed_at) remover_.wake();
  if (is_in_scheduler(*job)) partitions_.use();
  if (rests_.exchange(false)) ticker_.wake();
}

// An executor's thread.
void Impl::take_fact(core::JobId job, core::EventBody body) {
  // Before its end: an attempt that has ended takes no checkpoint any more.
  if (const auto* gone = std::get_if<core::AttemptGone>(&body)) sessions_.take_unsent({job, gone->attempt});
  if (auto* exited = std::get_if<core::RankExited>(&body)) {
    sessions_.take_unsent({job, exited->attempt}, exited->rank);
    if (const auto told = live_ranks_.view({job, exited->attempt}, exited->rank)) {
      if (exited->last_words.empty()) exited->last_words = told->leaving_reason;
      if (exited->error.empty() && exited->exit.code != 0) exited->error = told->leaving_reason;
      exited->step = told->step;
      if (told->program != nullptr) add_words(*told->program, *exited);
    }
    // The lost node is the first cause, and what a rank on another node says of its connection follows from it.
    if (agent::protocol::is_of_a_survivor(exited->error) || agent::protocol::is_of_a_survivor(exited->last_words)) {
      if (auto lost = live_ranks_.lost_node({job, exited->attempt}, round(false)))
        progress_.take(job, std::move(*lost));
    }
    if (exited->exit != core::ExitStatus{}) {
      if (auto cause = stacks_.first_cause({job, exited->attempt}, exited->rank))
        progress_.take(job, std::move(*cause));
    }
    exited->attempt_step = newest_step(job, *exited);
  }
  progress_.take(job, std::move(body));
}

// Other ranks need not be asked for a rank that did not fail, or for one that told a step itself: thousands may end at
// once.
core::Step Impl::newest_step(core::JobId id, const core::RankExited& exited) const {
  const auto job = event_log_.job(id);
  const auto* const attempt = job == nullptr ? nullptr : job->current();
  if (attempt == nullptr || attempt->number != exited.attempt) return 0;
  const auto from = attempt->resumed_from_step.value_or(0);
  if (exited.step > from) return exited.step;
  if (exited.exit == core::ExitStatus{}) return 0;
  if (attempt->state == core::AttemptState::kDraining) return 0;
  core::Step newest = 0;
  for (core::RankNumber rank = 0; rank < attempt->ranks.size(); ++rank) {
    const auto told = live_ranks_.view({id, exited.attempt}, rank);
    if (told && told->step > from) newest = std::max(newest, told->step);
  }
  return newest;
}

ranks::LiveRanks::Round Impl::round(bool deaf) {
  return {clock_.monotonic(), deaf, reading_.read_until(),
          [this](core::Millis silent_after) { return pace_.grace(silent_after); }};
}

void Impl::watch() {
  if (!started_ || leaving_) return;
  const auto now = clock_.monotonic();
  const auto lag = reading_.lag();
  pace_.note(lag, now);
  const bool deaf = hearing_.was_deaf() || lag > common::Hearing::kLate;
  if (deaf) executor_.was_deaf();
  executor_.tasks_read(reading_.read_until(), pace_.grace(core::Millis(0)));
  auto found = live_ranks_.watch(
      round(deaf), [this](const core::AttemptKey& key, core::RankNumber rank) { return executor_.vouch(key, rank); });
  // Conclusions about a missed rank come a second later; until then the probe tells of a disk that stands still.
  if (found.somebody_is_missed) probe_.ask();
  if (found.somebody_is_missed || reading_.asked_ago().value_or(kProbeReading) >= kProbeReading) reading_.ask();
  output_.set_suspected(found.suspected);
  for (auto& fact : stacks_.before_telling(std::move(found.facts))) event_log_.keep(fact.job, std::move(fact.body));
  dependencies_.tell();
  for (const auto& key : found.stop_again) {
    spdlog::warn("job {} attempt {}: ranks are still there after the grace; stopping them again", key.job, key.number);
    executor_.stop(key, {core::Millis(0)});
  }
  sessions_.take_what_waits();
}

// Without an attempt that has not ended there is nobody whose silence means anything. publish() ends the rest: what it
// tells before rests_ is set is seen here.
std::optional<core::Millis> Impl::until_next_watch() {
  rests_ = true;
  const auto late = sessions_.next_wait();
  if (live_ranks_.is_watching() || dependencies_.has_news()) {
    rests_ = false;
    return options_.tick_interval;
  }
  hearing_.rest();
  return late ? std::optional(std::max(*late, options_.tick_interval)) : std::nullopt;
}

bool Impl::scheduler_has_attempts() const {
  return std::ranges::any_of(event_log_.open_jobs(), [](const jobs::JobPtr& job) { return is_in_scheduler(*job); });
}

// First nothing new begins: no findings, no facts, no launches; watchers go home.
void Impl::leave(void (jobs::EventLog::*end_events)()) {
  ticker_.close();
  ageing_.close();
  runner_.stop_taking();
  remover_.stop_taking();
  partitions_.close();
  if (started_) executor_.shutdown();
  progress_.close();
  output_.close();
  stacks_.close();
  started_ = false;
  changes_.close();
  (event_log_.*end_events)();
  runner_.close();
  remover_.close();
  metrics_.close();
}

}  // namespace

std::unique_ptr<RunningController> make_controller(store::Store& store, executors::Executor& executor,
                                                   common::Clock& clock, ControllerOptions options) {
  return std::make_unique<Impl>(store, executor, clock, std::move(options));
}

}  // namespace service
