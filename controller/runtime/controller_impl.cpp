#include "runtime/controller_impl.h"

#include <openssl/rand.h>
#include <spdlog/spdlog.h>
#include <unistd.h>

#include <array>

#include "core/text.h"
#include "runtime/action_runner.h"
#include "runtime/newest_metrics.h"
#include "runtime/rank_desk.h"
#include "runtime/reconciler.h"
#include "runtime/token_file.h"
#include "runtime/views.h"
#include "spec/spec.h"

namespace runtime {
namespace {

constexpr std::size_t kMostRequestId = 64;
constexpr std::size_t kMostUser = 64;
constexpr std::size_t kMostSpecBytes = 1 << 20;
constexpr std::uint32_t kListDefault = 100;
constexpr std::uint32_t kListMost = 1000;

constexpr std::array kStates = {core::JobState::kPending,  core::JobState::kRunning,   core::JobState::kStopping,
                                core::JobState::kWaiting,  core::JobState::kSucceeded, core::JobState::kFailed,
                                core::JobState::kCancelled};

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
  return user.empty() ? "unknown" : core::valid_utf8(user.substr(0, kMostUser));
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
        started_at_(clock.wall()),
        specs_(store),
        newest_(store, board_),
        metrics_(store, options_.threads),
        dispatcher_(
            store, clock, [this](const JobPtr& job, bool actions) { publish(job, actions); }, options_.threads),
        runner_({store, executor, clock, dispatcher_, specs_}, options_.threads),
        desk_({clock, dispatcher_, metrics_, board_, specs_, changes_}, data_, secret_) {
    dispatcher_.load_open();
  }

  ~Impl() override {
    quiet();
    dispatcher_.close();
    runner_.close();
    metrics_.close();
  }

  void start(const Addresses& addresses) override {
    {
      std::lock_guard lock(addresses_mutex_);
      dashboard_ = addresses.dashboard;
    }
    executor_.start([this](core::JobId job, core::EventBody body) { take_fact(job, std::move(body)); });
    started_ = true;
    Reconciler({store_, executor_, clock_, dispatcher_, specs_, board_}).take_over();
    runner_.start({data_, options_.worker_program, addresses.grpc, secret_});
    if (options_.threads) ticker_ = std::thread([this] { run_ticker(); });
  }

  void stop() override {
    quiet();
    dispatcher_.drain();
    runner_.close();
    metrics_.close();
  }

  void tick() override {
    // Twice: what the first round finds out may ask for something at once.
    for (int round = 0; round < 2; ++round) {
      dispatcher_.pump();
      runner_.poll();
      if (round == 0) watch();
    }
  }

  Outcome<muster::v1::SubmitResponse> submit(const muster::v1::SubmitRequest& request) override;
  muster::v1::ListResponse list(const muster::v1::ListRequest& request) override;
  Outcome<muster::v1::Job> get(core::JobId id) override;
  Outcome<muster::v1::Job> cancel(core::JobId id, const std::string& user) override {
    return ask(id, core::CancelRequested{user_or_unknown(user)});
  }
  Outcome<muster::v1::Job> requeue(core::JobId id, const std::string& user) override {
    return ask(id, core::RequeueRequested{user_or_unknown(user)});
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
  muster::v1::StatusResponse status() override;
  std::uint64_t wait_change(core::JobId job, std::uint64_t seen, core::Millis timeout) override {
    return changes_.wait(job, seen, timeout);
  }

  Outcome<muster::v1::RegisterResponse> register_rank(const muster::v1::RegisterRequest& request,
                                                      const std::string& token) override {
    return desk_.register_rank(request, token);
  }
  Outcome<muster::v1::HeartbeatResponse> heartbeat(const muster::v1::HeartbeatRequest& request,
                                                   const std::string& token) override {
    return desk_.heartbeat(request, token);
  }
  Outcome<muster::v1::RendezvousResponse> rendezvous(const muster::v1::RendezvousRequest& request,
                                                     const std::string& token) override {
    return desk_.rendezvous(request, token);
  }
  bool is_people_token(const std::string& token) const override {
    return !options_.people_token.empty() && same_secret(token, options_.people_token);
  }

 private:
  Outcome<muster::v1::Job> ask(core::JobId id, core::EventBody body);
  muster::v1::Job view(const JobPtr& job);
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
  const core::Time started_at_;
  std::mutex addresses_mutex_;
  std::string dashboard_;

  Changes changes_;
  RankBoard board_;
  SpecCache specs_;
  NewestMetrics newest_;
  MetricsWriter metrics_;
  Dispatcher dispatcher_;
  ActionRunner runner_;
  RankDesk desk_;

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
  spec::fill_defaults(spec);
  std::string problems;
  for (const auto& problem :
       spec::validate(spec, options_.check_folders ? spec::FileChecks::kLook : spec::FileChecks::kSkip)) {
    problems += (problems.empty() ? "" : "\n") + spec::to_string(problem);
  }
  if (!problems.empty()) return refuse(Refusal::Kind::kInvalid, problems);
  std::string text = spec_to_text(spec);
  if (text.size() > kMostSpecBytes) return refuse(Refusal::Kind::kLimit, "the job file is larger than 1 MiB");
  const auto id = request.request_id().empty() ? random_request_id() : request.request_id();
  const auto outcome = dispatcher_.submit({job_submitted(spec, user_or_unknown(request.user())), id, std::move(text)});
  if (!outcome.ok()) return outcome.refusal();
  muster::v1::SubmitResponse response;
  response.set_job_id(outcome.value().id);
  response.set_already_submitted(outcome.value().already);
  return response;
}

muster::v1::ListResponse Impl::list(const muster::v1::ListRequest& request) {
  store::ListFilter filter;
  for (const auto state : kStates) {
    for (const auto& wanted : request.states()) {
      if (wanted == core::to_string(state)) filter.states.push_back(state);
    }
  }
  muster::v1::ListResponse response;
  if (request.states_size() > 0 && filter.states.empty()) return response;
  filter.limit = std::min(request.limit() == 0 ? kListDefault : request.limit(), kListMost);
  filter.before = request.before_id();
  for (const auto& row : store_.list(filter)) {
    const auto spec = specs_.get(row.id);
    const auto attempt = row.newest_attempt ? row.newest_attempt->number : 0;
    *response.add_jobs() = row_view(row, spec == nullptr ? 0 : spec->recipe().train().steps(),
                                    newest_.get(row.id, row.version, core::is_ended(row.state), attempt));
  }
  response.set_total(store_.count(filter.states));
  return response;
}

Outcome<muster::v1::Job> Impl::get(core::JobId id) {
  try {
    const auto job = dispatcher_.job(id);
    if (job == nullptr) return refuse(Refusal::Kind::kNotFound, "there is no job " + std::to_string(id));
    return view(job);
  } catch (const std::exception& e) {
    return refuse(Refusal::Kind::kUnavailable, e.what());
  }
}

Outcome<muster::v1::Job> Impl::ask(core::JobId id, core::EventBody body) {
  const auto outcome = dispatcher_.request(id, std::move(body));
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
  return job_view({*job, *spec, board_, data_, clock_.monotonic(),
                   newest_.get(job->id, job->version, core::is_ended(job->state), newest ? newest->number : 0)});
}

std::string Impl::log_path(core::JobId id, core::AttemptNumber attempt, core::RankNumber rank) {
  const auto job = dispatcher_.job(id);
  if (job == nullptr || attempt == 0 || attempt > job->attempts.size() || rank >= job->world_size) return {};
  return data_.log({id, attempt}, rank).string();
}

muster::v1::StatusResponse Impl::status() {
  constexpr std::array kActive = {core::JobState::kRunning, core::JobState::kStopping};
  muster::v1::StatusResponse out;
  out.set_version(options_.version);
  out.set_started_at(time_text(started_at_));
  out.set_pid(::getpid());
  out.set_data_folder(data_.root().string());
  out.set_schema_version(store_.schema_version());
  std::error_code error;
  const auto space = std::filesystem::space(data_.root(), error);
  if (!error) out.set_data_free_bytes(static_cast<std::int64_t>(space.available));
  out.set_executor(executor_.name());
  {
    std::lock_guard lock(addresses_mutex_);
    out.set_dashboard_url(dashboard_);
  }
  out.set_jobs_total(store_.count({}));
  out.set_jobs_running(store_.count(kActive));
  const auto problem = dispatcher_.problem();
  out.set_store_problem(problem.empty() ? metrics_.problem() : problem);
  out.set_events_total(store_.last_event_id());
  return out;
}

// Writer's thread.
void Impl::publish(const JobPtr& job, bool has_actions) {
  const auto now = clock_.monotonic();
  const auto* attempt = job->current();
  if (attempt != nullptr && attempt->state != core::AttemptState::kEnded) {
    try {
      if (const auto spec = specs_.get(job->id)) {
        board_.track({job->id, attempt->number}, liveness_rules(*spec), job->world_size, now, now);
      }
    } catch (const std::exception& e) {
      spdlog::error("job {} is not watched: {}", job->id, e.what());
    }
  }
  board_.follow(*job, now);
  changes_.bump(job->id);
  if (has_actions) runner_.wake();
}

// An executor's thread.
void Impl::take_fact(core::JobId job, core::EventBody body) {
  if (auto* exited = std::get_if<core::RankExited>(&body); exited != nullptr && exited->last_words.empty()) {
    exited->last_words = board_.leaving_reason({job, exited->attempt}, exited->rank);
  }
  dispatcher_.keep(job, std::move(body));
}

void Impl::watch() {
  if (!started_) return;
  auto found = board_.watch(clock_.monotonic(), [this](const core::AttemptKey& key, core::RankNumber rank) {
    return executor_.vouch(key, rank);
  });
  for (auto& fact : found.facts) dispatcher_.keep(fact.job, std::move(fact.body));
  for (const auto& key : found.stop_again) {
    spdlog::warn("job {} attempt {}: ranks are still there after the grace; stopping them again", key.job, key.number);
    executor_.stop(key, {core::Millis(0)});
  }
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
  if (started_) executor_.shutdown();
  started_ = false;
  changes_.close();
}

}  // namespace

std::unique_ptr<RunningController> make_controller(store::Store& store, Executor& executor, Clock& clock,
                                                   ControllerOptions options) {
  return std::make_unique<Impl>(store, executor, clock, std::move(options));
}

}  // namespace runtime
