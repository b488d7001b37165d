#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "controller/executors/executor.h"

namespace service::testing {

/// Processes that exist only in memory. The Machine is what survives a controller's crash: give the same one to the
/// next FakeExecutor. Nothing happens by itself: tests decide when ranks end. Thread-safe.
struct Machine {
  struct Process {
    bool alive = true;
    bool stopped = false;
    core::ExitStatus exit;
  };
  struct Attempt {
    executors::LaunchRequest request;
    std::vector<Process> ranks;
    std::vector<executors::StopRequest> stops;
  };
  std::mutex mutex;
  std::map<core::AttemptKey, Attempt> attempts;
  /// Launches that really started processes: more than one of a key is a bug.
  std::map<core::AttemptKey, int> starts;
  /// When set, launch() answers with this instead.
  std::string launch_failure;
  bool launch_failure_retryable = true;
  /// When set, launch() answers LaunchLater.
  std::string launch_later;
  /// So it does then, too, but the queue has taken the attempt, and withdraw() knows of it.
  bool takes_silently = false;
  /// Attempts wait in a queue, in which nothing moves unless a test gives nodes with begin().
  bool queue = false;
  std::vector<std::size_t> batches;  // sizes, of launches together
  std::vector<std::pair<core::AttemptKey, bool>> holds;
  std::vector<std::pair<core::AttemptKey, core::Millis>> limits;
  std::vector<std::pair<core::AttemptKey, executors::TaskReport>> tasks;
  std::vector<core::RankNumber> task_ranks;  // of each of these
  core::Millis tasks_read_until{0}, task_missed_after{0};
  bool gives_stacks = false;  // ranks can be asked for their stacks
  std::vector<std::pair<core::AttemptKey, std::uint64_t>> stacks_asked;
  std::vector<std::pair<core::AttemptKey, core::RankNumber>> failing;
  bool answers = true;                     // false: hold() and limit() can't be carried out now
  std::set<core::AttemptKey> beyond_hold;  // the queue has started them
  std::string limit_refusal;
  std::optional<executors::Trouble> trouble;
  std::optional<executors::QueueWord> word;
  std::vector<executors::Unfit> unfit;
  std::optional<executors::ClusterFacts> cluster;
  executors::ScriptCheck check;                    // what the queue says of a script
  std::vector<executors::LaunchRequest> scripted;  // the newest that scripts were asked for
  /// Calls of a model of the queue, at once and without the lock: when an attempt is really started, when hold() is
  /// asked for, and when stop() is.
  std::function<void(const core::AttemptKey&)> on_start, on_stop;
  std::function<executors::HoldAnswer(const core::AttemptKey&, bool)> on_hold;
  executors::OwnMachine own;  // what attempts share; read when a controller starts
  /// True if something of a stopped attempt is left; unset: nothing ever is.
  std::function<bool(const core::AttemptKey&)> on_is_there;

  bool has(const core::AttemptKey& key) {
    std::lock_guard lock(mutex);
    return attempts.contains(key);
  }
  Attempt get(const core::AttemptKey& key) {
    std::lock_guard lock(mutex);
    const auto found = attempts.find(key);
    return found == attempts.end() ? Attempt{} : found->second;
  }
  std::size_t stop_count(const core::AttemptKey& key) { return get(key).stops.size(); }
};

class FakeExecutor : public executors::Executor, public executors::AttemptLauncher {
 public:
  explicit FakeExecutor(std::shared_ptr<Machine> machine = std::make_shared<Machine>())
      : machine_(std::move(machine)) {}

  std::string name() const override { return "fake"; }
  void start(executors::FactSink sink) override {
    std::lock_guard lock(sink_mutex_);
    sink_ = std::move(sink);
  }
  void shutdown() override {
    std::lock_guard lock(sink_mutex_);
    sink_ = nullptr;
  }

  executors::AttemptLauncher& launcher(const executors::LaunchRequest&) override { return *this; }
  /// An attempt found again tells first what ended meanwhile, as a rank that ends at once does.
  executors::LaunchAnswer launch(const executors::LaunchRequest& request) override {
    auto answer = launch_once(request);
    tell_ended(request.key, answer);
    return answer;
  }

  std::vector<executors::LaunchAnswer> launch_all(const std::vector<executors::LaunchRequest>& requests) override {
    if (requests.size() > 1) {
      std::lock_guard lock(machine_->mutex);
      machine_->batches.push_back(requests.size());
    }
    return executors::AttemptLauncher::launch_all(requests);
  }
  std::optional<executors::LaunchAnswer> withdraw(const executors::LaunchRequest& request) override {
    if (!machine_->has(request.key)) return std::nullopt;
    auto answer = answer_launch(request);
    tell_ended(request.key, answer);
    return answer;
  }
  executors::HoldAnswer hold(const core::AttemptKey& key, bool held) override {
    if (machine_->on_hold) return machine_->on_hold(key, held);
    std::lock_guard lock(machine_->mutex);
    machine_->holds.emplace_back(key, held);
    if (machine_->beyond_hold.contains(key)) return executors::HoldAnswer::kRefused;
    return machine_->answers ? executors::HoldAnswer::kDone : executors::HoldAnswer::kLater;
  }
  executors::LimitAnswer limit(const core::AttemptKey& key, core::Millis limit) override {
    std::lock_guard lock(machine_->mutex);
    machine_->limits.emplace_back(key, limit);
    if (!machine_->answers) return {executors::LimitAnswer::Kind::kLater};
    if (!machine_->limit_refusal.empty()) return {executors::LimitAnswer::Kind::kRefused, machine_->limit_refusal};
    return {};
  }
  void task(const core::AttemptKey& key, core::RankNumber rank, const executors::TaskReport& report) override {
    std::lock_guard lock(machine_->mutex);
    machine_->tasks.emplace_back(key, report);
    machine_->task_ranks.push_back(rank);
  }
  bool ask_stacks(const core::AttemptKey& key, std::uint64_t number) override {
    std::lock_guard lock(machine_->mutex);
    if (machine_->gives_stacks) machine_->stacks_asked.emplace_back(key, number);
    return machine_->gives_stacks;
  }
  void tasks_read(core::Millis read_until, core::Millis missed_after) override {
    std::lock_guard lock(machine_->mutex);
    machine_->tasks_read_until = read_until;
    machine_->task_missed_after = missed_after;
  }
  void failing(const core::AttemptKey& key, core::RankNumber rank) override {
    std::lock_guard lock(machine_->mutex);
    machine_->failing.emplace_back(key, rank);
  }
  executors::OwnMachine own_machine() const override { return machine_->own; }
  void learn(executors::OwnMachine machine) override {
    machine_->own = std::move(machine);
    if (machine_changed) machine_changed();
  }
  void set_machine_sink(std::function<void()> changed) override { machine_changed = std::move(changed); }
  bool is_there(const core::AttemptKey& key) override { return machine_->on_is_there && machine_->on_is_there(key); }
  bool has_queue(const std::string& executor) const override { return machine_->queue && executor != "local"; }
  std::optional<executors::Trouble> trouble() const override { return machine_->trouble; }
  std::optional<executors::QueueWord> queue_word(const core::AttemptKey&) const override { return machine_->word; }
  std::vector<executors::Unfit> unfit(const executors::LaunchRequest&) const override { return machine_->unfit; }
  std::optional<executors::ClusterFacts> cluster() override { return machine_->cluster; }
  std::vector<std::string> scripts(const std::vector<executors::LaunchRequest>& requests) override {
    if (!machine_->queue) return {};
    machine_->scripted = requests;
    return {"a script"};
  }
  executors::ScriptCheck check_script(const std::string&) override { return machine_->check; }
  void set_history(std::function<bool(const core::AttemptKey&)> over) override { is_over = std::move(over); }

  /// The scheduler gives a queued attempt its nodes, one a rank.
  void begin(const core::AttemptKey& key, std::vector<std::string> nodes) {
    tell(key.job, core::AttemptStarted{key.number, std::move(nodes)});
  }

  /// Tells again what ended while nobody followed; AttemptGone when there is no trace.
  void adopt(const core::AttemptKey& key, const core::Attempt&) override {
    if (!machine_->has(key)) {
      tell(key.job, core::AttemptGone{key.number, core::Cause::kControllerLost, "no trace of it"});
    }
    for (auto& fact : ended_ranks(key)) tell(key.job, std::move(fact));
  }

  void stop(const core::AttemptKey& key, const executors::StopRequest& how) override {
    {
      std::lock_guard lock(machine_->mutex);
      const auto found = machine_->attempts.find(key);
      if (found != machine_->attempts.end()) found->second.stops.push_back(how);
    }
    if (machine_->on_stop) machine_->on_stop(key);
  }

  executors::Vouch vouch(const core::AttemptKey& key, core::RankNumber rank) override {
    std::lock_guard lock(machine_->mutex);
    if (vouches_unknown) return executors::Vouch::kUnknown;
    const auto found = machine_->attempts.find(key);
    if (found == machine_->attempts.end() || rank >= found->second.ranks.size()) return executors::Vouch::kGone;
    const auto& process = found->second.ranks[rank];
    if (!process.alive) return executors::Vouch::kGone;
    return process.stopped ? executors::Vouch::kStopped : executors::Vouch::kAlive;
  }

  std::function<void()> machine_changed;

  // Functions by which tests act on processes.
  void end(const core::AttemptKey& key, core::RankNumber rank, core::ExitStatus status) {
    {
      std::lock_guard lock(machine_->mutex);
      const auto found = machine_->attempts.find(key);
      if (found == machine_->attempts.end() || rank >= found->second.ranks.size()) return;
      auto& process = found->second.ranks[rank];
      if (!process.alive) return;
      process.alive = false;
      process.exit = status;
    }
    tell(key.job, exited(key, rank, status));
  }
  void end_all(const core::AttemptKey& key, core::ExitStatus status) {
    const auto count = machine_->get(key).ranks.size();
    for (std::size_t r = 0; r < count; ++r) end(key, static_cast<core::RankNumber>(r), status);
  }
  /// Without telling anyone: the fact is lost with a crash.
  void end_silently(const core::AttemptKey& key, core::RankNumber rank, core::ExitStatus status) {
    std::lock_guard lock(machine_->mutex);
    auto& process = machine_->attempts[key].ranks.at(rank);
    process.alive = false;
    process.exit = status;
  }
  void freeze(const core::AttemptKey& key, core::RankNumber rank) {
    std::lock_guard lock(machine_->mutex);
    machine_->attempts[key].ranks.at(rank).stopped = true;
  }

  void tell(core::JobId job, core::EventBody fact) {
    executors::FactSink sink;
    {
      std::lock_guard lock(sink_mutex_);
      sink = sink_;
    }
    if (sink) sink(job, std::move(fact));
  }

  Machine& machine() { return *machine_; }
  std::shared_ptr<Machine> shared_machine() { return machine_; }
  std::atomic<bool> vouches_unknown = false;
  std::function<bool(const core::AttemptKey&)> is_over;

 private:
  void tell_ended(const core::AttemptKey& key, const executors::LaunchAnswer& answer) {
    if (!std::holds_alternative<core::AttemptLaunched>(answer)) return;
    for (auto& fact : ended_ranks(key)) tell(key.job, std::move(fact));
  }
  executors::LaunchAnswer launch_once(const executors::LaunchRequest& request) {
    const auto before = starts_of(request.key);
    auto answer = answer_launch(request);
    if (machine_->on_start && starts_of(request.key) > before) machine_->on_start(request.key);
    return answer;
  }
  int starts_of(const core::AttemptKey& key) {
    std::lock_guard lock(machine_->mutex);
    const auto found = machine_->starts.find(key);
    return found == machine_->starts.end() ? 0 : found->second;
  }
  executors::LaunchAnswer answer_launch(const executors::LaunchRequest& request) {
    std::lock_guard lock(machine_->mutex);
    if (!machine_->launch_failure.empty()) {
      return core::AttemptLaunchFailed{request.key.number, machine_->launch_failure,
                                       machine_->launch_failure_retryable};
    }
    const bool away = !machine_->launch_later.empty() && !machine_->takes_silently;
    if (away && !machine_->attempts.contains(request.key)) return executors::LaunchLater{machine_->launch_later};
    auto [place, fresh] = machine_->attempts.try_emplace(request.key);
    if (fresh) {
      place->second.request = request;
      place->second.ranks.resize(request.nodes * request.ranks_per_node);
      ++machine_->starts[request.key];
    }
    if (!machine_->launch_later.empty()) return executors::LaunchLater{.why = machine_->launch_later, .unsure = true};
    if (machine_->queue && request.executor != "local") {
      const auto number = 100 * request.key.job + request.key.number;
      return core::AttemptLaunched{request.key.number,
                                   "Slurm job " + std::to_string(number),
                                   "",
                                   {},
                                   true,
                                   core::Millis(-1),
                                   core::SchedulerJob{static_cast<std::uint64_t>(number), std::nullopt}};
    }
    core::AttemptLaunched launched{request.key.number, "fake-" + std::to_string(request.key.job), "fakenode", {}};
    for (std::size_t r = 0; r < place->second.ranks.size(); ++r) {
      launched.pids.push_back(static_cast<std::int64_t>(1000 * request.key.job + 100 * request.key.number + r));
    }
    return launched;
  }

  std::vector<core::EventBody> ended_ranks(const core::AttemptKey& key) {
    std::vector<core::EventBody> ended;
    const auto attempt = machine_->get(key);
    for (std::size_t r = 0; r < attempt.ranks.size(); ++r) {
      const auto& process = attempt.ranks[r];
      if (!process.alive) ended.push_back(exited(key, static_cast<core::RankNumber>(r), process.exit));
    }
    return ended;
  }
  static core::EventBody exited(const core::AttemptKey& key, core::RankNumber rank, core::ExitStatus status) {
    return core::RankExited{key.number, rank, status, false, ""};
  }

  std::shared_ptr<Machine> machine_;
  std::mutex sink_mutex_;
  executors::FactSink sink_;
};

}  // namespace service::testing
