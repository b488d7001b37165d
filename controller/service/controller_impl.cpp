#include "service/controller_impl.h"

#include "base/time_text.h"
#include "jobs/spec_values.h"
#include "ranks/liveness_rules.h"

#include <openssl/rand.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <algorithm>
#include <array>

#include "actions/action_runner.h"
#include "base/disk_probe.h"
#include "base/hearing.h"
#include "base/job_files.h"
#include "base/tokens.h"
#include "executors/scheduler_handle.h"
#include "jobfile/idle_keys.h"
#include "jobfile/job_keys.h"
#include "jobfile/spec.h"
#include "jobs/dependencies.h"
#include "jobs/job_remover.h"
#include "jobs/progress_watch.h"
#include "partitions/partitions.h"
#include "ranks/newest_metrics.h"
#include "ranks/rank_sessions.h"
#include "schema/utf8.h"
#include "service/reconciler.h"
#include "service/standing.h"
#include "service/views.h"

namespace runtime {
namespace {

constexpr std::size_t kMostRequestId = 64;
constexpr std::size_t kMostUser = 64;
constexpr std::size_t kMostSpecBytes = 1 << 20;
constexpr std::uint32_t kListDefault = 100;
constexpr std::uint32_t kListMost = 1000;
constexpr int kMostSweep = 10000;
constexpr int kMostRemoved = 1000;
constexpr core::Millis kProbeMargin{100};

std::string random_request_id() {
  std::array<unsigned char, 16> bytes{};
  if (RAND_bytes(bytes.data(), static_cast<int>(bytes.size())) != 1) throw std::runtime_error("no random numbers");
  std::string out = "own-";
  for (const unsigned char b : bytes) {
    out += static_cast<char>('a' + (b >> 4));
    out += static_cast<char>('a' + (b & 15));
  }
  return out;
}

std::string user_or_unknown(const std::string& user) {
  // Cut in the middle of a character it would be no text that can be sent.
  return user.empty() ? "unknown" : schema::valid_utf8(user.substr(0, kMostUser));
}

/// The job's place in its sweep, which is named when it is stored.
void name_in_sweep(muster::v1::JobSpec& spec, int index, std::uint32_t parallel) {
  spec.mutable_sweep()->clear_sweep();
  spec.mutable_sweep()->set_index(static_cast<std::uint32_t>(index));
  spec.mutable_sweep()->set_parallel(parallel);
}

void fill_change(const core::Job& job, muster::v1::Job& out) {
  out.set_id(job.id);
  out.set_name(job.name);
  out.set_state(std::string(core::to_string(job.state)));
  out.set_reason(job.reason);
  out.set_user(job.user);
  out.set_status(status_word(job));
  if (job.held) out.set_held_by(job.held_by);
}

Refusal refuse(Refusal::Kind kind, std::string text) {
  return {kind, std::move(text)};
}

class Impl final : public RunningController {
 public:
  Impl(store::Store& store, Executor& executor, Clock& clock, ControllerOptions options)
      : store_(store),
        executor_(executor),
        clock_(clock),
        options_(std::move(options)),
        data_(options_.data_folder),
        secret_(store.secret()),
        schema_version_(store.schema_version()),
        started_at_(clock.wall()),
        hearing_(clock),
        probe_(hearing_, clock, data_.disk_probe(), options_.threads),
        specs_(store),
        newest_(store),
        metrics_(store, hearing_, newest_, options_.threads),
        partitions_({store, executor, clock, specs_, options_.why_no_slurm, options_.excluded_for},
                    options_.partitions_file, options_.threads),
        event_log_(
            store, clock, hearing_, [this](const JobPtr& job, bool actions) { publish(job, actions); },
            options_.threads),
        dependencies_(event_log_),
        progress_(event_log_, specs_, data_, options_.threads),
        runner_({store, executor, clock, event_log_, specs_, gate_, partitions_, options_.excluded_for},
                options_.threads),
        sessions_({clock, executor, event_log_, metrics_, live_ranks_, specs_, changes_, hearing_}, data_, secret_,
                  options_.threads),
        remover_({store, event_log_, data_, options_.scheduler_log}, options_.threads) {
    event_log_.load_open();
    event_log_.begin_after(data_.newest_job_folder());
    for (const auto& job : event_log_.open_jobs()) {
      specs_.follow(*job);
      gate_.follow(*job);
      partitions_.follow(*job);
      dependencies_.follow(*job);
    }
  }

  ~Impl() override {
    quiet();
    event_log_.close();
    progress_.close();
    runner_.close();
    remover_.close();
    metrics_.close();
  }

  void start(const Addresses& addresses) override {
    {
      std::lock_guard lock(addresses_mutex_);
      dashboard_ = addresses.dashboard;
    }
    executor_.set_history([this](const core::AttemptKey& key) { return is_over(key); });
    executor_.set_lost_nodes([this] { return runner_.nodes_lost_lately(); });
    executor_.start([this](core::JobId job, core::EventBody body) { take_fact(job, std::move(body)); });
    started_ = true;
    look_at_store();
    partitions_.start();
    Reconciler({store_, executor_, clock_, event_log_, specs_, live_ranks_}).take_over();
    sessions_.search_unsent(attempts_that_are_over());
    runner_.start({data_, options_.worker_program, addresses.grpc, secret_});
    remover_.start();
    if (options_.threads) ticker_ = std::thread([this] { run_ticker(); });
  }

  void stop() override {
    quiet();
    event_log_.drain();
    runner_.close();
    remover_.close();
    metrics_.close();
  }

  void tick() override {
    // Twice: what the first round finds out may ask for something at once.
    for (int round = 0; round < 2; ++round) {
      event_log_.pump();
      runner_.poll();
      remover_.poll();
      if (round == 0) watch();
      if (round == 0) partitions_.poll();
    }
  }

  Outcome<muster::v1::SubmitResponse> submit(const muster::v1::SubmitRequest& request) override;
  muster::v1::ListResponse list(const muster::v1::ListRequest& request) override;
  Outcome<muster::v1::Job> get(core::JobId id) override;
  Outcome<muster::v1::JobSpec> spec(core::JobId id) override;
  Outcome<muster::v1::Job> cancel(core::JobId id, const std::string& user) override {
    return ask(id, core::CancelRequested{user_or_unknown(user)});
  }
  Outcome<muster::v1::Job> requeue(core::JobId id, const std::string& user) override {
    return ask(id, core::RequeueRequested{user_or_unknown(user)});
  }
  Outcome<muster::v1::Job> hold(core::JobId id, const std::string& user) override {
    return ask(id, core::HoldRequested{user_or_unknown(user)});
  }
  Outcome<muster::v1::Job> release(core::JobId id, const std::string& user) override {
    return ask(id, core::ReleaseRequested{user_or_unknown(user)});
  }
  Outcome<muster::v1::Job> set_time_limit(core::JobId id, core::Millis limit, const std::string& user) override {
    if (limit < core::Millis(0)) return refuse(Refusal::Kind::kInvalid, "time_limit: want a duration such as 12h");
    if (const auto refusal = refuse_time(id, limit)) return *refusal;
    return ask(id, core::TimeLimitChanged{user_or_unknown(user), limit});
  }
  Outcome<muster::v1::SubmitSweepResponse> submit_sweep(const muster::v1::SubmitSweepRequest& request) override;
  Outcome<muster::v1::ChangeSweepResponse> change_sweep(const muster::v1::ChangeSweepRequest& request) override;
  Outcome<muster::v1::RemoveResponse> remove(const muster::v1::RemoveRequest& request) override;
  Outcome<muster::v1::WhyResponse> why(core::JobId id) override;
  Outcome<muster::v1::PlanScriptResponse> plan_script(const muster::v1::PlanScriptRequest& request) override;
  Outcome<muster::v1::CheckScriptResponse> check_script(const muster::v1::PlanScriptRequest& request) override;
  Outcome<muster::v1::ListPartitionsResponse> list_partitions(
      const muster::v1::ListPartitionsRequest& request) override {
    return partitions_.list(request);
  }
  Outcome<muster::v1::PartitionView> set_partition(const muster::v1::SetPartitionRequest& request) override {
    return partitions_.set(request);
  }
  Outcome<muster::v1::RemovePartitionResponse> remove_partition(
      const muster::v1::RemovePartitionRequest& request) override {
    return partitions_.remove(request);
  }
  Outcome<muster::v1::ListNodesResponse> list_nodes() override { return partitions_.nodes(); }
  muster::v1::ListAuditResponse list_audit(const muster::v1::ListAuditRequest& request) override {
    return partitions_.audit(request);
  }
  std::vector<muster::v1::Event> events(core::JobId job, std::int64_t after_id, std::uint32_t limit) override {
    std::vector<muster::v1::Event> out;
    for (const auto& event : store_.events(job, after_id, limit)) out.push_back(event_view(event));
    return out;
  }
  std::int64_t last_event_id() override { return store_.last_event_id(); }
  store::Totals totals(std::int64_t after_event, std::uint32_t most) override {
    return store_.totals(after_event, most);
  }
  std::vector<muster::v1::Metric> metrics(core::JobId id, core::AttemptNumber attempt,
                                          core::AttemptNumber after_attempt, core::Step after_step,
                                          std::uint32_t limit) override {
    std::vector<muster::v1::Metric> out;
    for (const auto& row : store_.metrics(id, attempt, after_attempt, after_step, limit)) {
      out.push_back(metric_view(row));
    }
    return out;
  }
  std::string log_path(core::JobId id, core::AttemptNumber attempt, core::RankNumber rank) override;
  std::string scheduler_log_path(core::JobId id, core::AttemptNumber attempt) override;
  muster::v1::StatusResponse status() override;
  std::uint64_t wait_change(core::JobId job, std::uint64_t seen, core::Millis timeout) override {
    return changes_.wait(job, seen, timeout);
  }

  Outcome<muster::v1::RegisterResponse> register_rank(const muster::v1::RegisterRequest& request,
                                                      const std::string& token) override {
    return sessions_.register_rank(request, token);
  }
  Outcome<muster::v1::HeartbeatResponse> heartbeat(const muster::v1::HeartbeatRequest& request,
                                                   const std::string& token) override {
    return sessions_.heartbeat(request, token);
  }
  Outcome<muster::v1::RendezvousResponse> rendezvous(const muster::v1::RendezvousRequest& request,
                                                     const std::string& token) override {
    return sessions_.rendezvous(request, token);
  }
  Outcome<muster::v1::TaskResponse> task(const muster::v1::TaskRequest& request, const std::string& token) override {
    return sessions_.task(request, token);
  }
  bool is_people_token(const std::string& token) const override {
    return !options_.people_token.empty() && same_secret(token, options_.people_token);
  }
  bool is_rank_token(const core::AttemptKey& attempt, const std::string& token) const override {
    return same_secret(token, rank_token(secret_, attempt.job, attempt.number));
  }

 private:
  Outcome<muster::v1::Job> ask(core::JobId id, core::EventBody body);
  /// A partition's refusal, unless the request was answered before: then it gets the same answer again.
  std::optional<Refusal> unless_known(std::optional<Refusal> refusal, const std::string& request_id);
  std::optional<Refusal> refuse_time(core::JobId id, core::Millis limit);
  /// Fills the defaults; empty, or everything that is wrong, a line each.
  std::string problems_of(muster::v1::JobSpec& spec) const;
  muster::v1::Job view(const JobPtr& job);
  /// Asks every part that may know why the job waits.
  Standing standing(const core::Job& job);
  bool is_over(const core::AttemptKey& key) const;
  /// As the first attempts would be launched, were they submitted next.
  Outcome<std::vector<LaunchRequest>> planned(const muster::v1::PlanScriptRequest& request);
  /// What the executor would hand over of them.
  Outcome<std::vector<std::string>> scripts_of(const std::vector<LaunchRequest>& requests);
  /// Why there is none of such a job.
  Refusal no_script(const LaunchRequest& request) const;
  std::vector<core::JobId> jobs_of(const std::string& sweep);
  /// Jobs that open ones wait for, or whose folder these save into, each with such an open one.
  std::map<core::JobId, core::JobId> needed_by_open_jobs();
  muster::v1::RemovedJob removal_of(const core::Job& job);
  /// Of the newest jobs.
  std::vector<core::AttemptKey> attempts_that_are_over();
  void look_at_store();
  void publish(const JobPtr& job, bool has_actions);
  void take_fact(core::JobId job, core::EventBody body);
  void watch();
  void run_ticker();
  void quiet();

  store::Store& store_;
  Executor& executor_;
  Clock& clock_;
  const ControllerOptions options_;
  const DataFolder data_;
  const std::string secret_;
  const std::int64_t schema_version_;
  const core::Time started_at_;
  std::mutex addresses_mutex_;
  std::string dashboard_;

  /// What status() told last of the store and its disk.
  struct Counted {
    std::int64_t jobs = 0, running = 0, events = 0, free_bytes = 0;
    std::vector<std::string> problems = {};
  };
  std::mutex counted_mutex_;
  Counted counted_;

  Changes changes_;
  Hearing hearing_;
  DiskProbe probe_;
  LiveRanks live_ranks_;
  SpecCache specs_;
  NewestMetrics newest_;
  MetricsWriter metrics_;
  Partitions partitions_;
  SweepGate gate_;
  EventLog event_log_;
  Dependencies dependencies_;
  ProgressWatch progress_;
  ActionRunner runner_;
  RankSessions sessions_;
  JobRemover remover_;

  bool started_ = false;
  std::mutex ticker_mutex_;
  std::condition_variable ticker_wake_;
  bool ticker_closed_ = false;
  std::thread ticker_;
};

Outcome<muster::v1::SubmitResponse> Impl::submit(const muster::v1::SubmitRequest& request) {
  if (request.request_id().size() > kMostRequestId) {
    return refuse(Refusal::Kind::kInvalid, "request_id: want at most 64 characters");
  }
  muster::v1::JobSpec spec = request.spec();
  spec.clear_sweep();
  const auto user = user_or_unknown(request.user());
  if (const auto refusal = unless_known(partitions_.admit(spec, user), request.request_id())) return *refusal;
  if (const auto problems = problems_of(spec); !problems.empty()) return refuse(Refusal::Kind::kInvalid, problems);
  std::string text = spec_to_text(spec);
  if (text.size() > kMostSpecBytes) return refuse(Refusal::Kind::kLimit, "the job file is larger than 1 MiB");
  const auto id = request.request_id().empty() ? random_request_id() : request.request_id();
  auto turn = partitions_.take_turn({{partitions_.place_of(spec), 1}}, user);
  if (const auto refusal = unless_known(std::move(turn.refusal), request.request_id())) return *refusal;
  const auto outcome = event_log_.submit({job_submitted(spec, user), id, std::move(text)});
  if (!outcome.ok()) return outcome.refusal();
  muster::v1::SubmitResponse response;
  response.set_job_id(outcome.value().id);
  response.set_already_submitted(outcome.value().already);
  return response;
}

std::optional<Refusal> Impl::unless_known(std::optional<Refusal> refusal, const std::string& request_id) {
  if (!refusal || request_id.empty()) return refusal;
  try {
    return store_.find_request(request_id) ? std::nullopt : refusal;
  } catch (const std::exception&) {
    return refusal;
  }
}

std::optional<Refusal> Impl::refuse_time(core::JobId id, core::Millis limit) {
  try {
    const auto job = event_log_.job(id);
    return job == nullptr || job->removed_at ? std::nullopt : partitions_.judge_time(*job, limit);
  } catch (const std::exception& e) {
    return refuse(Refusal::Kind::kUnavailable, e.what());
  }
}

std::string Impl::problems_of(muster::v1::JobSpec& spec) const {
  jobfile::fill_defaults(spec);
  std::string problems;
  const auto add = [&](const std::string& problem) { problems += (problems.empty() ? "" : "\n") + problem; };
  // What "auto" is here is known by now.
  auto judged = spec;
  if (spec.executor() == "auto") judged.set_executor(executor_.has_queue("auto") ? "slurm" : "local");
  for (const auto& problem :
       jobfile::validate(judged, options_.check_folders ? jobfile::FileChecks::kLook : jobfile::FileChecks::kSkip)) {
    add(jobfile::to_string(problem));
  }
  for (auto& unfit : executor_.unfit(launch_request(spec, {}, {data_, {}, {}, {}}))) {
    add(jobfile::to_string({unfit.field, unfit.value, unfit.wanted, unfit.remedy, {}}));
  }
  if (spec.executor() == "debug") {
    add("executor \"debug\": it runs where muster submit runs, without a controller; use \"auto\", \"slurm\" or "
        "\"local\"");
  }
  const auto& folder = spec.checkpoint().folder();
  if (const auto id = folder.empty() ? std::nullopt : data_.job_of(folder)) {
    const auto other = event_log_.job(*id);
    if (other != nullptr && other->removed_at) {
      add("checkpoint.folder \"" + folder + "\": it is in the folder of job " + std::to_string(*id) +
          ", which is deleted: " + core::removed_text(*other) + "; choose another one");
    }
  }
  for (const auto& text : spec.after()) {
    const auto dependency = parse_dependency(text);
    if (!dependency) {
      add("after \"" + text + "\": want succeeded:<job>, failed:<job> or ended:<job>");
    } else if (const auto other = event_log_.job(dependency->job); other == nullptr) {
      add("after \"" + text + "\": there is no job " + std::to_string(dependency->job));
    } else if (other->removed_at) {
      add("after \"" + text + "\": " + core::removed_text(*other) + ", and its files with it; leave it out");
    }
  }
  return problems;
}

Outcome<muster::v1::SubmitSweepResponse> Impl::submit_sweep(const muster::v1::SubmitSweepRequest& request) {
  if (request.request_id().size() > kMostRequestId) {
    return refuse(Refusal::Kind::kInvalid, "request_id: want at most 64 characters");
  }
  if (request.specs().empty()) return refuse(Refusal::Kind::kInvalid, "specs: a sweep of no job at all");
  if (request.specs_size() > kMostSweep) {
    return refuse(Refusal::Kind::kLimit, "specs: a sweep of " + std::to_string(request.specs_size()) +
                                             " jobs; at most " + std::to_string(kMostSweep) + ", submit it in parts");
  }
  const auto id = request.request_id().empty() ? random_request_id() : request.request_id();
  const auto user = user_or_unknown(request.user());
  std::vector<EventLog::Submission> submissions;
  std::map<std::string, std::uint32_t> places;
  for (int i = 0; i < request.specs_size(); ++i) {
    muster::v1::JobSpec spec = request.specs(i);
    name_in_sweep(spec, i, request.parallel());
    if (!spec.has_recipe() && spec.environment() != "clean" && spec.submitted_env().empty()) {
      *spec.mutable_submitted_env() = request.submitted_env();
    }
    if (auto refusal = unless_known(partitions_.admit(spec, user), request.request_id())) {
      return refuse(refusal->kind, "job " + std::to_string(i) + " of the sweep: " + refusal->text);
    }
    ++places[partitions_.place_of(spec)];
    if (const auto problems = problems_of(spec); !problems.empty()) {
      return refuse(Refusal::Kind::kInvalid, "job " + std::to_string(i) + " of the sweep: " + problems);
    }
    std::string text = spec_to_text(spec);
    if (text.size() > kMostSpecBytes) return refuse(Refusal::Kind::kLimit, "the job file is larger than 1 MiB");
    submissions.push_back({job_submitted(spec, user), id, std::move(text)});
  }
  auto turn = partitions_.take_turn(places, user);
  if (const auto refusal = unless_known(std::move(turn.refusal), request.request_id())) return *refusal;
  const auto outcome = event_log_.submit_sweep(std::move(submissions));
  if (!outcome.ok()) return outcome.refusal();
  muster::v1::SubmitSweepResponse response;
  const auto first = outcome.value().id;
  response.set_sweep(sweep_name(first));
  response.set_already_submitted(outcome.value().already);
  if (!outcome.value().already) {
    for (int i = 0; i < request.specs_size(); ++i) response.add_job_ids(first + i);
    return response;
  }
  const auto job = event_log_.job(first);
  if (job == nullptr || job->sweep.sweep != response.sweep()) {
    return refuse(Refusal::Kind::kInvalid, "request_id: it was used for job " + std::to_string(first) +
                                               ", which is no sweep; choose another one");
  }
  for (const auto left : jobs_of(response.sweep())) response.add_job_ids(left);
  if (response.job_ids().empty()) {
    return refuse(Refusal::Kind::kInvalid, "request_id: it was used for sweep " + response.sweep() +
                                               ", whose jobs are all removed; choose another one to submit it again");
  }
  return response;
}

std::vector<core::JobId> Impl::jobs_of(const std::string& sweep) {
  store::ListFilter filter;
  filter.sweep = sweep;
  filter.limit = kListMost;
  std::vector<core::JobId> ids;
  for (bool more = true; more;) {
    const auto rows = store_.list(filter);
    for (const auto& row : rows) ids.push_back(row.id);
    more = rows.size() == kListMost;
    if (more) filter.before = rows.back().id;
  }
  std::ranges::sort(ids);
  return ids;
}

Outcome<muster::v1::ChangeSweepResponse> Impl::change_sweep(const muster::v1::ChangeSweepRequest& request) {
  const auto user = user_or_unknown(request.user());
  std::optional<core::EventBody> body;
  if (request.change() == muster::v1::SWEEP_CHANGE_CANCEL) body = core::CancelRequested{user};
  if (request.change() == muster::v1::SWEEP_CHANGE_REQUEUE) body = core::RequeueRequested{user};
  if (request.change() == muster::v1::SWEEP_CHANGE_HOLD) body = core::HoldRequested{user};
  if (request.change() == muster::v1::SWEEP_CHANGE_RELEASE) body = core::ReleaseRequested{user};
  if (!body) {
    return refuse(Refusal::Kind::kInvalid, "change " + std::to_string(static_cast<int>(request.change())) +
                                               ": want cancel, requeue, hold or release");
  }
  try {
    const auto ids = request.sweep().empty() ? std::vector<core::JobId>{} : jobs_of(request.sweep());
    if (ids.empty()) {
      return refuse(Refusal::Kind::kNotFound,
                    "no sweep " + request.sweep() + "; muster list shows the sweeps there are");
    }
    const auto outcome = event_log_.request_all(ids, std::move(*body));
    if (!outcome.ok()) return outcome.refusal();
    const auto& [jobs, refusals] = outcome.value();
    if (jobs.empty()) {
      return refuse(Refusal::Kind::kWrongState,
                    "none of the " + std::to_string(ids.size()) + " jobs of sweep " + request.sweep() +
                        " allows it; the last said: " + (refusals.empty() ? "" : refusals.back()));
    }
    muster::v1::ChangeSweepResponse response;
    for (const auto& job : jobs) fill_change(*job, *response.add_jobs());
    response.set_refused(static_cast<std::uint32_t>(refusals.size()));
    if (!refusals.empty()) response.set_refusal(refusals.back());
    return response;
  } catch (const std::exception& e) {
    return refuse(Refusal::Kind::kUnavailable, e.what());
  }
}

std::map<core::JobId, core::JobId> Impl::needed_by_open_jobs() {
  std::map<core::JobId, core::JobId> needed;
  for (const auto& job : event_log_.open_jobs()) {
    for (const auto& dependency : job->after) needed.emplace(dependency.job, job->id);
    const auto spec = specs_.get(job->id);
    if (spec == nullptr || spec->checkpoint().folder().empty()) continue;
    if (const auto id = data_.job_of(spec->checkpoint().folder())) needed.emplace(*id, job->id);
  }
  return needed;
}

muster::v1::RemovedJob Impl::removal_of(const core::Job& job) {
  muster::v1::RemovedJob out;
  out.set_job_id(job.id);
  out.set_name(job.name);
  out.set_state(std::string(core::to_string(job.state)));
  out.set_bytes(bytes_below(data_.job(job.id)));
  if (const auto spec = specs_.get(job.id)) out.set_kept_checkpoint_folder(spec->checkpoint().folder());
  return out;
}

Outcome<muster::v1::RemoveResponse> Impl::remove(const muster::v1::RemoveRequest& request) {
  if (request.job_ids_size() > kMostRemoved) {
    return refuse(Refusal::Kind::kLimit, "job_ids: " + std::to_string(request.job_ids_size()) + " jobs; at most " +
                                             std::to_string(kMostRemoved) + " at once, remove them in parts");
  }
  muster::v1::RemoveResponse response;
  const auto refused = [&](core::JobId id, const std::string& why, bool is_gone) {
    auto& out = *response.add_refused();
    out.set_job_id(id);
    out.set_why(why);
    out.set_is_gone(is_gone);
  };
  try {
    std::map<core::JobId, muster::v1::RemovedJob> wanted;
    for (const auto id : request.job_ids()) {
      const auto job = event_log_.job(id);
      if (job == nullptr) {
        refused(id, "there is no job " + std::to_string(id), true);
      } else if (const auto why = core::refuse_remove(*job); !why.empty()) {
        refused(id, why, job->removed_at.has_value());
      } else {
        wanted.emplace(id, removal_of(*job));
      }
    }
    // Looked for last, for a large folder takes its time to measure.
    for (const auto& [id, by] : needed_by_open_jobs()) {
      if (wanted.erase(id) == 0) continue;
      refused(id,
              "job " + std::to_string(id) + " is needed by job " + std::to_string(by) +
                  ", which has not ended: remove it after that one",
              false);
    }
    if (!request.dry_run() && !wanted.empty()) {
      std::vector<core::JobId> ids;
      for (const auto& [id, removal] : wanted) ids.push_back(id);
      const auto outcome = event_log_.request_all(ids, core::JobRemoved{user_or_unknown(request.user())});
      if (!outcome.ok()) return outcome.refusal();
      std::map<core::JobId, muster::v1::RemovedJob> removed;
      for (const auto& job : outcome.value().jobs) removed.insert(wanted.extract(job->id));
      // A failed job may have been requeued since it was looked at.
      for (const auto& [id, removal] : wanted)
        refused(id, "job " + std::to_string(id) + " has changed meanwhile", false);
      wanted = std::move(removed);
    }
    for (auto& [id, removal] : wanted) *response.add_removed() = std::move(removal);
    return response;
  } catch (const std::exception& e) {
    return refuse(Refusal::Kind::kUnavailable, e.what());
  }
}

Standing Impl::standing(const core::Job& job) {
  StandingFacts facts{job, clock_.wall()};
  if (core::is_ended(job.state)) return standing_of(facts);
  const auto* attempt = job.current();
  const bool between = attempt == nullptr || attempt->state == core::AttemptState::kEnded;
  const auto number = static_cast<core::AttemptNumber>(job.attempts.size() + (between ? 1 : 0));
  facts.trouble = executor_.trouble();
  facts.queue = executor_.queue_word({job.id, number});
  if (auto& word = facts.queue; word && word->expected_start && !is_foreseen(*word->expected_start, facts.now)) {
    word->expected_start.reset();
    if (!word->sentence.empty())
      word->sentence += " When it starts can't be told: a job without a time limit is first.";
  }
  if (between || job.state == core::JobState::kQueued) facts.turn = gate_.explain(job.id);
  if (const auto off = between ? runner_.put_off(job.id) : std::nullopt) facts.put_off = {off->why, off->remedy};
  facts.partition = partitions_.explain(job, facts.queue ? facts.queue->reason : std::string());
  return standing_of(facts);
}

Outcome<muster::v1::WhyResponse> Impl::why(core::JobId id) {
  try {
    const auto job = event_log_.job(id);
    if (job == nullptr) return refuse(Refusal::Kind::kNotFound, "there is no job " + std::to_string(id));
    if (job->removed_at) return refuse(Refusal::Kind::kNotFound, core::removed_text(*job));
    muster::v1::WhyResponse out;
    out.set_job_id(id);
    out.set_state(std::string(core::to_string(job->state)));
    fill_standing(standing(*job), out);
    if (const auto spec = specs_.get(id)) {
      for (auto& note : jobfile::idle_keys(*spec, job->reports())) out.add_notes(std::move(note));
    }
    return out;
  } catch (const std::exception& e) {
    return refuse(Refusal::Kind::kUnavailable, e.what());
  }
}

muster::v1::ListResponse Impl::list(const muster::v1::ListRequest& request) {
  store::ListFilter filter;
  for (const auto state : core::kAllJobStates) {
    for (const auto& wanted : request.states()) {
      if (wanted == core::to_string(state)) filter.states.push_back(state);
    }
  }
  muster::v1::ListResponse response;
  if (request.states_size() > 0 && filter.states.empty()) return response;
  filter.limit = std::min(request.limit() == 0 ? kListDefault : request.limit(), kListMost);
  filter.before = request.before_id();
  filter.sweep = request.sweep();
  filter.ids.assign(request.job_ids().begin(), request.job_ids().end());
  if (filter.ids.size() > kListMost) filter.ids.resize(kListMost);
  const auto trouble = executor_.trouble();
  for (const auto& row : store_.list(filter)) {
    const auto spec = specs_.get(row.id);
    const auto open = core::is_ended(row.state) ? nullptr : event_log_.job(row.id);
    auto& job = *response.add_jobs();
    job = row_view(row, open != nullptr ? standing(*open) : standing_of({ended_job(row)}), spec.get(),
                   row.newest_attempt ? newest_.get(row.id) : std::nullopt);
    if (open != nullptr) fill_open(*open, trouble, job);
  }
  response.set_total(filter.ids.empty() ? store_.count(filter.states, filter.sweep) : response.jobs_size());
  return response;
}

Outcome<muster::v1::Job> Impl::get(core::JobId id) {
  try {
    const auto job = event_log_.job(id);
    if (job == nullptr) return refuse(Refusal::Kind::kNotFound, "there is no job " + std::to_string(id));
    if (job->removed_at) return refuse(Refusal::Kind::kNotFound, core::removed_text(*job));
    return view(job);
  } catch (const std::exception& e) {
    return refuse(Refusal::Kind::kUnavailable, e.what());
  }
}

Outcome<muster::v1::JobSpec> Impl::spec(core::JobId id) {
  try {
    const auto job = event_log_.job(id);
    if (job != nullptr && job->removed_at) return refuse(Refusal::Kind::kNotFound, core::removed_text(*job));
    const auto spec = job == nullptr ? nullptr : specs_.get(id);
    if (spec == nullptr) return refuse(Refusal::Kind::kNotFound, "there is no job " + std::to_string(id));
    return *spec;
  } catch (const std::exception& e) {
    return refuse(Refusal::Kind::kUnavailable, e.what());
  }
}

Outcome<muster::v1::Job> Impl::ask(core::JobId id, core::EventBody body) {
  const auto outcome = event_log_.request(id, std::move(body));
  if (!outcome.ok()) return outcome.refusal();
  try {
    return view(outcome.value());
  } catch (const std::exception& e) {
    return refuse(Refusal::Kind::kUnavailable, std::string("it is done, but the job cannot be shown: ") + e.what());
  }
}

muster::v1::Job Impl::view(const JobPtr& job) {
  const auto spec = specs_.get(job->id);
  if (spec == nullptr) throw std::runtime_error("job " + std::to_string(job->id) + " has no stored spec");
  const auto* newest = job->current();
  return job_view({*job, *spec, live_ranks_, data_, clock_.monotonic(), newest ? newest_.get(job->id) : std::nullopt,
                   newest ? newest_.series(job->id) : std::vector<store::SeriesRow>(), executor_.trouble(),
                   standing(*job)});
}

std::string Impl::log_path(core::JobId id, core::AttemptNumber attempt, core::RankNumber rank) {
  const auto job = event_log_.job(id);
  if (job == nullptr || job->removed_at || attempt == 0 || attempt > job->attempts.size() || rank >= job->world_size)
    return {};
  return data_.log({id, attempt}, rank).string();
}

std::string Impl::scheduler_log_path(core::JobId id, core::AttemptNumber attempt) {
  const auto job = event_log_.job(id);
  if (job == nullptr || job->removed_at || attempt == 0 || attempt > job->attempts.size() || !options_.scheduler_log)
    return {};
  if (!scheduler_job_of(job->attempts[attempt - 1].handle)) return {};
  return options_.scheduler_log(data_.attempt({id, attempt})).string();
}

void Impl::look_at_store() {
  constexpr std::array kActive = {core::JobState::kRunning, core::JobState::kStopping};
  Counted now{store_.count({}), store_.count(kActive), store_.last_event_id(), 0};
  std::error_code error;
  const auto space = std::filesystem::space(data_.root(), error);
  if (!error) now.free_bytes = static_cast<std::int64_t>(space.available);
  if (options_.problems) now.problems = options_.problems();
  std::lock_guard lock(counted_mutex_);
  counted_ = now;
}

muster::v1::StatusResponse Impl::status() {
  muster::v1::StatusResponse out;
  out.set_version(options_.version);
  out.set_started_at(time_text(started_at_));
  out.set_pid(::getpid());
  out.set_data_folder(data_.root().string());
  out.set_schema_version(schema_version_);
  out.set_executor(executor_.name());
  for (const auto& name : executor_.names()) out.add_executors(name);
  if (const auto trouble = executor_.trouble()) {
    out.set_scheduler_problem(unreachable_text(*trouble));
  }
  {
    std::lock_guard lock(addresses_mutex_);
    out.set_dashboard_url(dashboard_);
  }
  if (!hearing_.stuck_since()) probe_.ask_and_wait(Hearing::kStuckAfter + kProbeMargin);
  const auto problem = event_log_.problem();
  out.set_store_problem(problem.empty() ? metrics_.problem() : problem);
  // Then nothing is asked that might wait for the disk, or nobody would be told.
  if (!hearing_.stuck_since()) look_at_store();
  {
    std::lock_guard lock(counted_mutex_);
    out.set_jobs_total(counted_.jobs);
    out.set_jobs_running(counted_.running);
    out.set_events_total(counted_.events);
    out.set_data_free_bytes(counted_.free_bytes);
    for (const auto& text : counted_.problems) out.add_problems(text);
  }
  for (auto& text : partitions_.problems()) out.add_partition_problems(std::move(text));
  return out;
}

bool Impl::is_over(const core::AttemptKey& key) const {
  const auto job = event_log_.job(key.job);
  if (job == nullptr) return false;  // another's, or one whose store was taken away: not ours to judge
  if (key.number == 0 || key.number > job->attempts.size()) return core::is_ended(job->state);
  return job->attempts[key.number - 1].state == core::AttemptState::kEnded;
}

Outcome<std::vector<LaunchRequest>> Impl::planned(const muster::v1::PlanScriptRequest& request) {
  if (request.specs().empty()) return refuse(Refusal::Kind::kInvalid, "specs: no job at all");
  if (request.specs_size() > (request.is_sweep() ? kMostSweep : 1)) {
    return refuse(Refusal::Kind::kLimit, "specs: " + std::to_string(request.specs_size()) + " jobs are too many");
  }
  std::vector<LaunchRequest> requests;
  const auto first = event_log_.next_job_id();
  for (int i = 0; i < request.specs_size(); ++i) {
    muster::v1::JobSpec spec = request.specs(i);
    if (request.is_sweep()) name_in_sweep(spec, i, request.parallel());
    const std::string place = request.is_sweep() ? "job " + std::to_string(i) + " of the sweep: " : "";
    if (const auto refusal = partitions_.admit(spec, user_or_unknown(request.user()))) {
      return refuse(refusal->kind, place + refusal->text);
    }
    if (const auto problems = problems_of(spec); !problems.empty()) {
      return refuse(Refusal::Kind::kInvalid, place + problems);
    }
    auto planned = launch_request(spec, {first + i, 1}, {data_, options_.worker_program, "the controller", secret_});
    const bool alone = request.parallel() > 0 && partitions_.limits_running(spec);
    if (request.is_sweep() && !alone) planned.sweep = sweep_name(first);
    partitions_.equip(planned);
    requests.push_back(std::move(planned));
  }
  runner_.leave_out_lost_nodes(requests);
  return requests;
}

Refusal Impl::no_script(const LaunchRequest& request) const {
  const auto names = executor_.names();
  const bool has_slurm = std::ranges::find(names, "slurm") != names.end();
  if (request.executor != "local") return no_slurm(options_.why_no_slurm);
  return {Refusal::Kind::kInvalid,
          std::string("executor \"local\": its ranks are started as processes of the controller's machine, without a "
                      "script of Slurm's") +
              (has_slurm ? "; use \"slurm\" to see one" : "")};
}

Outcome<muster::v1::PlanScriptResponse> Impl::plan_script(const muster::v1::PlanScriptRequest& request) {
  const auto requests = planned(request);
  if (!requests.ok()) return requests.refusal();
  const auto scripts = scripts_of(requests.value());
  if (!scripts.ok()) return scripts.refusal();
  muster::v1::PlanScriptResponse response;
  for (const auto& script : scripts.value()) response.add_scripts(script);
  const auto alone = std::ranges::count_if(requests.value(), [](const auto& each) { return each.sweep.empty(); });
  if (request.is_sweep()) response.set_one_by_one(static_cast<std::uint32_t>(alone));
  return response;
}

Outcome<std::vector<std::string>> Impl::scripts_of(const std::vector<LaunchRequest>& requests) {
  std::vector<std::string> scripts;
  const auto add = [&](std::vector<LaunchRequest>& some) {
    if (some.empty()) return;
    for (auto& script : executor_.scripts(some)) scripts.push_back(std::move(script));
    some.clear();
  };
  std::vector<LaunchRequest> batch, alone;
  for (const auto& request : requests) {
    (request.sweep.empty() ? alone : batch).push_back(request);
    if (batch.size() == ActionRunner::kLargestBatch) add(batch);
  }
  add(batch);
  add(alone);
  if (scripts.empty()) return no_script(requests.front());
  return scripts;
}

Outcome<muster::v1::CheckScriptResponse> Impl::check_script(const muster::v1::PlanScriptRequest& request) {
  const auto requests = planned(request);
  if (!requests.ok()) return requests.refusal();
  const auto scripts = scripts_of(requests.value());
  if (!scripts.ok()) return scripts.refusal();
  // Of several the first that is refused has the word, else the first of all.
  std::optional<ScriptCheck> word;
  for (const auto& script : scripts.value()) {
    auto check = executor_.check_script(script);
    if (!check.unreachable.empty()) return refuse(Refusal::Kind::kUnavailable, "Slurm: " + check.unreachable);
    if (!word || !check.refusal.empty()) word = std::move(check);
    if (!word->refusal.empty()) break;
  }
  muster::v1::CheckScriptResponse response;
  response.set_refusal(word->refusal);
  if (word->start && is_foreseen(*word->start, clock_.wall())) response.set_expected_start(time_text(word->start));
  response.set_partition(word->partition);
  response.set_nodes(word->nodes);
  return response;
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
void Impl::publish(const JobPtr& job, bool has_actions) {
  specs_.follow(*job);
  const auto now = clock_.monotonic();
  const auto* attempt = job->current();
  if (attempt != nullptr && attempt->state != core::AttemptState::kEnded) {
    try {
      if (const auto spec = specs_.get(job->id)) {
        live_ranks_.track({job->id, attempt->number}, liveness_rules(*spec), job->world_size, now, now);
      }
    } catch (const std::exception& e) {
      spdlog::error("job {} is not watched: {}", job->id, e.what());
    }
  }
  live_ranks_.follow(*job, now);
  gate_.follow(*job);
  partitions_.follow(*job);
  dependencies_.follow(*job);
  changes_.bump(job->id);
  if (has_actions) runner_.wake();
  if (has_actions && job->removed_at) remover_.wake();
}

// An executor's thread.
void Impl::take_fact(core::JobId job, core::EventBody body) {
  // Before its end: an attempt that has ended takes no checkpoint any more.
  if (const auto* gone = std::get_if<core::AttemptGone>(&body)) sessions_.take_unsent({job, gone->attempt});
  if (auto* exited = std::get_if<core::RankExited>(&body)) {
    sessions_.take_unsent({job, exited->attempt}, exited->rank);
    const auto said = live_ranks_.leaving_reason({job, exited->attempt}, exited->rank);
    if (exited->last_words.empty()) exited->last_words = said;
    if (exited->error.empty() && exited->exit.code != 0) exited->error = said;
    if (const auto told = live_ranks_.view({job, exited->attempt}, exited->rank)) exited->step = told->step;
  }
  progress_.take(job, std::move(body));
}

void Impl::watch() {
  if (!started_) return;
  const bool deaf = hearing_.was_deaf();
  if (deaf) executor_.was_deaf();
  auto found = live_ranks_.watch(clock_.monotonic(), deaf, [this](const core::AttemptKey& key, core::RankNumber rank) {
    return executor_.vouch(key, rank);
  });
  // What is concluded of it is concluded a second later; until then this tells of a disk that stands still.
  if (found.somebody_is_missed) probe_.ask();
  for (auto& fact : found.facts) event_log_.keep(fact.job, std::move(fact.body));
  dependencies_.tell();
  for (const auto& key : found.stop_again) {
    spdlog::warn("job {} attempt {}: ranks are still there after the grace; stopping them again", key.job, key.number);
    executor_.stop(key, {core::Millis(0)});
  }
  sessions_.take_what_waits();
}

void Impl::run_ticker() {
  while (true) {
    {
      std::unique_lock lock(ticker_mutex_);
      ticker_wake_.wait_for(lock, options_.tick_interval, [&] { return ticker_closed_; });
      if (ticker_closed_) return;
    }
    try {
      watch();
    } catch (const std::exception& e) {
      spdlog::error("ranks could not be watched this time: {}", e.what());
    }
  }
}

// Nothing new begins: no findings, no facts, no launches; watchers go home.
void Impl::quiet() {
  {
    std::lock_guard lock(ticker_mutex_);
    ticker_closed_ = true;
  }
  ticker_wake_.notify_all();
  if (ticker_.joinable()) ticker_.join();
  runner_.stop_taking();
  remover_.stop_taking();
  partitions_.close();
  if (started_) executor_.shutdown();
  progress_.close();
  started_ = false;
  changes_.close();
}

}  // namespace

std::unique_ptr<RunningController> make_controller(store::Store& store, Executor& executor, Clock& clock,
                                                   ControllerOptions options) {
  return std::make_unique<Impl>(store, executor, clock, std::move(options));
}

}  // namespace runtime
