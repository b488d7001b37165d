#include "controller/executors/executor.h"

#include <algorithm>
#include <map>
#include <mutex>
#include <type_traits>

namespace executors {
namespace {

/// See make_routing_executor().
class RoutingExecutor : public Executor {
 public:
  RoutingExecutor(Executor& local, Executor& slurm, std::size_t remembered)
      : local_(local), slurm_(slurm), remembered_(remembered) {}

  std::string name() const override { return slurm_.name(); }
  std::vector<std::string> names() const override { return {slurm_.name(), local_.name()}; }
  void set_history(std::function<bool(const core::AttemptKey&)> is_over) override {
    both(&Executor::set_history, is_over);
    is_over_ = std::move(is_over);
  }
  void set_lost_nodes(std::function<LostNodes()> lost) override { slurm_.set_lost_nodes(std::move(lost)); }
  std::vector<Unfit> unfit(const LaunchRequest& request) const override {
    return chosen(request.executor).unfit(request);
  }
  void start(FactSink sink) override { both(&Executor::start, sink); }
  void shutdown() override { both(&Executor::shutdown); }

  AttemptLauncher& launcher(const LaunchRequest& request) override {
    Executor& owner = chosen(request.executor);
    remember(request.key, owner);
    forget_ended();
    return owner.launcher(request);
  }
  void adopt(const core::AttemptKey& key, const core::Attempt& attempt) override {
    Executor& owner = attempt.scheduler_job ? slurm_ : local_;
    remember(key, owner);
    owner.adopt(key, attempt);
  }
  // An attempt that nobody knows may be with either; stopping what is not there does no harm.
  void stop(const core::AttemptKey& key, const StopRequest& how) override {
    if (Executor* owner = of(key)) return owner->stop(key, how);
    both(&Executor::stop, key, how);
  }

  Vouch vouch(const core::AttemptKey& key, core::RankNumber rank) override {
    Executor* owner = of(key);
    return owner == nullptr ? Vouch::kUnknown : owner->vouch(key, rank);
  }
  HoldAnswer hold(const core::AttemptKey& key, bool hold) override {
    Executor* owner = of(key);
    return owner == nullptr ? HoldAnswer::kRefused : owner->hold(key, hold);
  }
  LimitAnswer limit(const core::AttemptKey& key, core::Millis limit) override {
    Executor* owner = of(key);
    return owner == nullptr ? LimitAnswer{} : owner->limit(key, limit);
  }
  void failing(const core::AttemptKey& key, core::RankNumber rank) override {
    if (Executor* owner = of(key)) owner->failing(key, rank);
  }
  void task(const core::AttemptKey& key, core::RankNumber rank, const TaskReport& report) override {
    if (Executor* owner = of(key)) owner->task(key, rank, report);
  }
  bool is_there(const core::AttemptKey& key) override {
    Executor* owner = of(key);
    return owner == nullptr ? local_.is_there(key) : owner->is_there(key);
  }
  OwnMachine own_machine() const override { return local_.own_machine(); }
  void learn(OwnMachine machine) override { local_.learn(std::move(machine)); }
  void set_machine_sink(std::function<void()> changed) override { local_.set_machine_sink(std::move(changed)); }
  bool ask_stacks(const core::AttemptKey& key, std::uint64_t number) override {
    Executor* owner = of(key);
    return owner != nullptr && owner->ask_stacks(key, number);
  }
  void was_deaf() override { both(&Executor::was_deaf); }
  void tasks_read(core::Millis read_until, core::Millis missed_after) override {
    slurm_.tasks_read(read_until, missed_after);
  }

  bool has_queue(const std::string& wanted) const override { return chosen(wanted).has_queue(wanted); }
  std::vector<std::string> scripts(const std::vector<LaunchRequest>& requests) override {
    auto theirs = requests;
    std::erase_if(theirs, [&](const LaunchRequest& request) { return &chosen(request.executor) != &slurm_; });
    return theirs.empty() ? std::vector<std::string>{} : slurm_.scripts(theirs);
  }
  ScriptCheck check_script(const std::string& script) override { return slurm_.check_script(script); }
  std::optional<Trouble> trouble() const override { return slurm_.trouble(); }
  std::optional<QueueWord> queue_word(const core::AttemptKey& key) const override { return slurm_.queue_word(key); }
  std::optional<ClusterFacts> cluster() override { return slurm_.cluster(); }

 private:
  Executor& chosen(const std::string& wanted) const { return wanted == local_.name() ? local_ : slurm_; }
  template <typename... Given>
  void both(void (Executor::*call)(Given...), const std::type_identity_t<Given>&... given) {
    (local_.*call)(given...);
    (slurm_.*call)(given...);
  }
  void remember(const core::AttemptKey& key, Executor& owner) {
    std::lock_guard lock(mutex_);
    owners_[key] = &owner;
  }
  /// Null: an attempt that this run of the controller has not seen, or that is over and forgotten.
  Executor* of(const core::AttemptKey& key) const {
    std::lock_guard lock(mutex_);
    const auto found = owners_.find(key);
    return found == owners_.end() ? nullptr : found->second;
  }
  // Makes room for one more. Two are looked at, in turns: a launch costs the same however many are remembered, and
  // those that are over go faster than others come.
  void forget_ended() {
    std::vector<core::AttemptKey> over;
    {
      std::lock_guard lock(mutex_);
      if (!is_over_ || owners_.size() <= remembered_) return;
      for (auto left = std::min<std::size_t>(2, owners_.size()); left > 0; --left) {
        auto next = owners_.upper_bound(looked_at_);
        if (next == owners_.end()) next = owners_.begin();
        over.push_back(looked_at_ = next->first);
      }
    }
    std::erase_if(over, [&](const core::AttemptKey& key) { return !is_over_(key); });
    std::lock_guard lock(mutex_);
    for (const auto& key : over) owners_.erase(key);
  }

  Executor& local_;
  Executor& slurm_;
  const std::size_t remembered_;
  std::function<bool(const core::AttemptKey&)> is_over_;
  mutable std::mutex mutex_;
  std::map<core::AttemptKey, Executor*> owners_;
  core::AttemptKey looked_at_;  // last, for room
};

}  // namespace

std::unique_ptr<Executor> make_routing_executor(Executor& local, Executor& slurm, std::size_t remembered) {
  return std::make_unique<RoutingExecutor>(local, slurm, remembered);
}

}  // namespace executors
