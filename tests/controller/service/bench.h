#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <string>

#include "controller/common/tokens.h"
#include "controller/service/controller_impl.h"
#include "controller/store/sqlite_store.h"
#include "tests/controller/service/fake_executor.h"
#include "tests/controller/store/memory_store.h"
#include "tests/manual_clock.h"
#include "tests/recipe_values.h"
#include "tests/temporary_folder.h"

namespace service::testing {

using namespace std::chrono_literals;

/// A value of a series in one step.
inline void add_value(muster::v1::StepMetric& metric, const std::string& series, double value) {
  auto& added = *metric.add_values();
  added.set_series(series);
  added.set_value(value);
}

/// In memory if possible, since these tests sync thousands of files.
class TempFolder : public test::TemporaryFolder {
 public:
  TempFolder() : TemporaryFolder(test::memory_folder()) {}
};

/// Where a simulated controller dies: thrown out of a store or executor call, caught by the test alone (it is no
/// std::exception, so nothing on the way swallows it).
struct Crash {};

/// Counts steps that matter to the outside and dies at the chosen one.
struct CrashPoint {
  int steps = 0;
  int at = -1;  // never
  void step() {
    if (steps++ == at) throw Crash{};
  }
};

/// Dies before or after a write.
class CrashingStore : public store::Store {
 public:
  CrashingStore(store::Store& inner, CrashPoint& point, std::map<core::JobId, int>& unreadable)
      : inner_(inner), point_(point), unreadable_(unreadable) {}
  std::vector<std::int64_t> append(std::span<const store::Commit> commits) override {
    point_.step();
    ++appends;
    auto ids = inner_.append(commits);
    point_.step();
    return ids;
  }
  void set_actions(std::span<const std::int64_t> ids, store::ActionState state) override {
    if (ids.empty()) return;
    point_.step();
    if (state == store::ActionState::kDone) ++completions;
    inner_.set_actions(ids, state);
    point_.step();
  }
  void set_launching(std::span<const store::LaunchingAction> actions) override {
    if (actions.empty()) return;
    point_.step();
    inner_.set_launching(actions);
    point_.step();
  }
  void add_metrics(std::span<const store::MetricRow> rows,
                   std::span<const store::DeclaredSeries> declared = {}) override {
    point_.step();
    inner_.add_metrics(rows, declared);
    point_.step();
  }
  store::Totals totals(std::int64_t after, std::uint32_t most) override { return inner_.totals(after, most); }
  store::Thinned thinned(const store::ThinRequest& request) override { return inner_.thinned(request); }
  std::optional<store::MetricRow> newest_metric(core::JobId job) override { return inner_.newest_metric(job); }
  std::optional<core::JobId> find_request(const std::string& id) override { return inner_.find_request(id); }
  core::JobId next_job_id() override { return inner_.next_job_id(); }
  std::optional<core::Job> load(core::JobId id) override { return inner_.load(id); }
  std::optional<std::string> spec_json(core::JobId id) override {
    if (const auto left = unreadable_.find(id); left != unreadable_.end() && left->second-- > 0) {
      throw store::Error(store::Error::Kind::kOther, "disk I/O error");
    }
    return inner_.spec_json(id);
  }
  std::vector<core::Job> load_open() override { return inner_.load_open(); }
  std::vector<store::JobRow> list(const store::ListFilter& filter) override { return inner_.list(filter); }
  std::int64_t count(std::span<const core::JobState> states, const std::string& sweep) override {
    return inner_.count(states, sweep);
  }
  std::vector<store::StoredEvent> node_losses(core::Time since, std::uint32_t limit) override {
    return inner_.node_losses(since, limit);
  }
  std::vector<store::StoredEvent> events(core::JobId job, std::int64_t after, std::uint32_t limit) override {
    return inner_.events(job, after, limit);
  }
  std::int64_t last_event_id() override { return inner_.last_event_id(); }
  std::vector<store::PendingAction> pending_actions() override { return inner_.pending_actions(); }
  std::vector<store::StepRow> metrics(core::JobId job, core::AttemptNumber attempt, core::AttemptNumber after_attempt,
                                      core::Step after_step, std::uint32_t limit) override {
    return inner_.metrics(job, attempt, after_attempt, after_step, limit);
  }
  std::vector<store::PartitionRow> partitions() override { return inner_.partitions(); }
  void change_partitions(std::span<const store::AuditRow> changes) override {
    point_.step();
    inner_.change_partitions(changes);
    point_.step();
  }
  std::optional<core::Drain> drain() override { return inner_.drain(); }
  void change_drain(const std::optional<core::Drain>& drain, const std::string& user, core::Time at) override {
    point_.step();
    inner_.change_drain(drain, user, at);
    point_.step();
  }
  std::vector<store::AuditRow> audit(std::int64_t before, const std::string& partition, std::uint32_t limit) override {
    return inner_.audit(before, partition, limit);
  }
  std::vector<store::SeriesRow> series(core::JobId job) override { return inner_.series(job); }
  std::int64_t metrics_left_out(core::JobId job) override { return inner_.metrics_left_out(job); }
  std::uint32_t remove_metrics(core::JobId job, std::uint32_t most) override {
    point_.step();
    const auto removed = inner_.remove_metrics(job, most);
    point_.step();
    return removed;
  }
  bool age_metrics(const store::MetricsKeep& keep, std::uint32_t most) override {
    return inner_.age_metrics(keep, most);
  }
  std::string secret() override { return inner_.secret(); }
  std::string place() override { return inner_.place(); }
  void settle(const std::string& place, bool new_secret) override { inner_.settle(place, new_secret); }
  std::int64_t schema_version() override { return inner_.schema_version(); }

  int appends = 0, completions = 0;  // transactions

 private:
  store::Store& inner_;
  CrashPoint& point_;
  std::map<core::JobId, int>& unreadable_;
};

/// Dies before or after each launch (of several at once, too) or stop.
class CrashingExecutor : public FakeExecutor {
 public:
  CrashingExecutor(std::shared_ptr<Machine> machine, CrashPoint& point)
      : FakeExecutor(std::move(machine)), point_(point) {}
  executors::LaunchAnswer launch(const executors::LaunchRequest& request) override {
    point_.step();
    auto answer = FakeExecutor::launch(request);
    point_.step();
    return answer;
  }
  void stop(const core::AttemptKey& key, const executors::StopRequest& how) override {
    point_.step();
    FakeExecutor::stop(key, how);
    point_.step();
  }

 private:
  CrashPoint& point_;
};

inline muster::v1::SubmitRequest recipe_request(const std::string& request_id, std::uint32_t ranks = 2) {
  muster::v1::SubmitRequest request;
  request.set_request_id(request_id);
  request.set_user("ada");
  auto& spec = *request.mutable_spec();
  spec.set_name("llama");
  spec.mutable_resources()->set_ranks_per_node(ranks);
  spec.mutable_recipe()->set_kind("causal_lm");
  test::put(spec, "data.source", "fixture");
  test::put(spec, "train.steps", 100);
  spec.set_working_folder("/tmp");
  return request;
}

inline muster::v1::SubmitRequest command_request(const std::string& request_id, std::uint32_t ranks = 1) {
  muster::v1::SubmitRequest request;
  request.set_request_id(request_id);
  request.set_user("ada");
  auto& spec = *request.mutable_spec();
  spec.set_name("mine");
  spec.mutable_resources()->set_ranks_per_node(ranks);
  spec.mutable_command()->add_argv("python3");
  spec.mutable_command()->add_argv("train.py");
  spec.set_working_folder("/tmp");
  return request;
}

inline muster::v1::SubmitSweepRequest sweep_request(const std::string& request_id, int count, std::uint32_t parallel) {
  muster::v1::SubmitSweepRequest request;
  request.set_request_id(request_id);
  request.set_user("ada");
  request.set_parallel(parallel);
  for (int i = 0; i < count; ++i) {
    auto& spec = *request.add_specs();
    spec = command_request("").spec();
    (*spec.mutable_sweep()->mutable_settings())["train.seed"] = std::to_string(i);
  }
  return request;
}

enum class StoreKind { kMemory, kSqlite };
inline std::string store_name(const ::testing::TestParamInfo<StoreKind>& param) {
  return param.param == StoreKind::kMemory ? "Memory" : "Sqlite";
}

/// One musterd without threads on a bench: its store and the machine its ranks run on outlive its crashes, and time
/// moves only when told.
class Bench {
 public:
  explicit Bench(StoreKind kind = StoreKind::kMemory) : kind_(kind) { start(); }
  ~Bench() { crash(); }

  void start() {
    if (kind_ == StoreKind::kSqlite) {
      sqlite_ = store::open_sqlite_store(folder_.path() / "muster.db");
    }
    store_ = std::make_unique<CrashingStore>(base_store(), point, unreadable);
    executor_ = std::make_unique<CrashingExecutor>(machine, point);
    ControllerOptions options;
    options.data_folder = folder_.path();
    options.people_token = "people";
    options.version = "test";
    options.threads = false;
    options.advertised = [this] { return advertised; };
    controller_ = make_controller(*store_, *executor_, clock, options);
    controller_->start({"127.0.0.1:7600", "http://127.0.0.1:7601/"});
  }
  /// The process is gone: whatever was not written is lost. Ranks go on.
  void crash() {
    controller_.reset();
    executor_.reset();
    store_.reset();
    sqlite_.reset();
  }
  void restart() {
    crash();
    start();
  }

  RunningController& controller() { return *controller_; }
  FakeExecutor& executor() { return *executor_; }
  CrashingStore& store() { return *store_; }
  store::MemoryStore& memory() { return memory_; }
  const std::filesystem::path& folder() const { return folder_.path(); }

  core::JobId submit(const muster::v1::SubmitRequest& request) {
    const auto outcome = controller_->submit(request);
    EXPECT_TRUE(outcome.ok()) << outcome.refusal().text;
    tick();
    return outcome.ok() ? outcome.value().job_id() : 0;
  }
  muster::v1::Job job(core::JobId id) {
    auto outcome = controller_->get(id);
    EXPECT_TRUE(outcome.ok()) << outcome.refusal().text;
    return outcome.ok() ? outcome.value() : muster::v1::Job{};
  }
  std::string state(core::JobId id) { return job(id).state(); }
  muster::v1::Attempt attempt(core::JobId id, int number) {
    const auto view = job(id);
    EXPECT_GE(view.attempts_size(), number);
    return number <= view.attempts_size() ? view.attempts(number - 1) : muster::v1::Attempt{};
  }

  void tick() { controller_->tick(); }
  /// Time passes in ticks of 100 ms, as it does for a controller that is not late; `each` is called at every one.
  void pass(core::Millis time, const std::function<void()>& each = {}) {
    for (core::Millis gone{0}; gone < time; gone += 100ms) {
      clock.advance(100ms);
      if (each) each();
      tick();
    }
  }

  std::string token(core::AttemptKey key) { return common::rank_token(store_->secret(), key.job, key.number); }
  static muster::v1::HeartbeatRequest beat(core::AttemptKey key, core::RankNumber rank, core::Step step = 0) {
    muster::v1::HeartbeatRequest request;
    request.mutable_key()->set_job_id(key.job);
    request.mutable_key()->set_attempt(key.number);
    request.mutable_key()->set_rank(rank);
    request.set_step(step);
    request.set_section(step > 0 ? muster::v1::SECTION_STEP : muster::v1::SECTION_INIT);
    return request;
  }
  common::Outcome<muster::v1::HeartbeatResponse> send(const muster::v1::HeartbeatRequest& request) {
    return controller_->heartbeat(request, token({request.key().job_id(), request.key().attempt()}));
  }
  muster::v1::Directive heartbeat(core::AttemptKey key, core::RankNumber rank, core::Step step = 0) {
    const auto outcome = send(beat(key, rank, step));
    EXPECT_TRUE(outcome.ok()) << outcome.refusal().text;
    return outcome.ok() ? outcome.value().directive() : muster::v1::DIRECTIVE_STOP;
  }
  void heartbeats(core::AttemptKey key, std::uint32_t ranks, core::Step step = 0) {
    for (std::uint32_t r = 0; r < ranks; ++r) heartbeat(key, r, step);
  }
  /// The first attempt's ranks that report, from 0 on, make a hundred steps of half a second.
  void train(core::JobId id, std::uint32_t reporting = 1) {
    for (core::Step step = 1; step <= 100; ++step) {
      pass(500ms, [&] { heartbeats({id, 1}, reporting, step); });
    }
  }
  /// They say that they stand at the hundredth.
  void stand(core::JobId id, core::Millis time, std::uint32_t reporting = 1) {
    for (core::Millis gone{0}; gone < time; gone += 500ms) {
      clock.advance(400ms);
      heartbeats({id, 1}, reporting, 100);
      pass(100ms);
    }
  }
  std::vector<std::string> event_types(core::JobId id) {
    std::vector<std::string> out;
    for (const auto& event : controller_->events(id, 0, 10000)) out.push_back(event.type());
    return out;
  }
  /// A sweep of `count` jobs, at most `parallel` at once; their ids.
  std::vector<core::JobId> submit_sweep(const std::string& request_id, int count, std::uint32_t parallel) {
    const auto outcome = controller_->submit_sweep(sweep_request(request_id, count, parallel));
    EXPECT_TRUE(outcome.ok()) << outcome.refusal().text;
    tick();
    if (!outcome.ok()) return {};
    return {outcome.value().job_ids().begin(), outcome.value().job_ids().end()};
  }
  muster::v1::WhyResponse why(core::JobId id) {
    auto outcome = controller_->why(id);
    EXPECT_TRUE(outcome.ok()) << outcome.refusal().text;
    return outcome.ok() ? outcome.value() : muster::v1::WhyResponse{};
  }
  std::int64_t count_events(core::JobId id, const std::string& type) {
    const auto types = event_types(id);
    return std::count(types.begin(), types.end(), type);
  }

  CrashPoint point;
  std::map<core::JobId, int> unreadable;  // how often the job's spec cannot be read yet
  common::ManualClock clock;
  std::pair<std::string, std::string> advertised{"head1:7600", ""};  // musterd's address, and what is wrong with it
  std::shared_ptr<Machine> machine = std::make_shared<Machine>();

 private:
  store::Store& base_store() { return kind_ == StoreKind::kSqlite ? *sqlite_ : memory_; }

  const StoreKind kind_;
  TempFolder folder_;
  store::MemoryStore memory_;
  std::unique_ptr<store::Store> sqlite_;
  std::unique_ptr<CrashingStore> store_;
  std::unique_ptr<CrashingExecutor> executor_;
  std::unique_ptr<RunningController> controller_;
};

}  // namespace service::testing
