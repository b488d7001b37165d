#pragma once

#include <map>
#include <mutex>
#include <type_traits>

#include "executors/executor.h"

namespace executors {

/// Local processes and Slurm behind one executor: each attempt goes where its job file says, "auto" to Slurm, and later
/// calls about it go to the same one. Thread-safe as the two are.
class RoutingExecutor : public Executor {
 public:
  static constexpr std::size_t kRemembered = 100'000;

  /// Both must outlive it.
  RoutingExecutor(Executor& local, Executor& slurm, std::size_t remembered = kRemembered)
      : local_(local), slurm_(slurm), remembered_(remembered) {}

  std::string name() const override { return slurm_.name(); }
  std::vector<std::string> names() const override { return {slurm_.name(), local_.name()}; }
  void set_history(std::function<bool(const core::AttemptKey&)> is_over) override;
  void set_lost_nodes(std::function<LostNodes()> lost) override { slurm_.set_lost_nodes(std::move(lost)); }
  std::vector<Unfit> unfit(const LaunchRequest& request) const override {
    return chosen(request.executor).unfit(request);
  }
  void start(FactSink sink) override { both(&Executor::start, sink); }
  LaunchAnswer launch(const LaunchRequest& request) override { return launch_all({request}).front(); }
  std::vector<LaunchAnswer> launch_all(const std::vector<LaunchRequest>& requests) override;
  std::optional<LaunchAnswer> withdraw(const LaunchRequest& request) override;
  void adopt(const core::AttemptKey& key, const core::Attempt& attempt) override;
  void stop(const core::AttemptKey& key, const StopRequest& how) override;
  Vouch vouch(const core::AttemptKey& key, core::RankNumber rank) override {
    Executor* owner = of(key);
    return owner == nullptr ? Vouch::kUnknown : owner->vouch(key, rank);
  }
  void was_deaf() override { both(&Executor::was_deaf); }
  void tasks_read(core::Millis read_until, core::Millis missed_after) override {
    slurm_.tasks_read(read_until, missed_after);
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
  bool has_queue(const std::string& wanted) const override { return chosen(wanted).has_queue(wanted); }
  std::vector<std::string> scripts(const std::vector<LaunchRequest>& requests) override;
  ScriptCheck check_script(const std::string& script) override { return slurm_.check_script(script); }
  std::optional<Trouble> trouble() const override { return slurm_.trouble(); }
  std::optional<QueueWord> queue_word(const core::AttemptKey& key) const override { return slurm_.queue_word(key); }
  std::optional<ClusterFacts> cluster() override { return slurm_.cluster(); }
  void shutdown() override { both(&Executor::shutdown); }

 private:
  Executor& chosen(const std::string& wanted) const { return wanted == local_.name() ? local_ : slurm_; }
  template <typename... Given>
  void both(void (Executor::*call)(Given...), const std::type_identity_t<Given>&... given) {
    (local_.*call)(given...);
    (slurm_.*call)(given...);
  }
  void remember(const core::AttemptKey& key, Executor& owner);
  /// Null: an attempt that this run of the controller has not seen, or that is over and forgotten.
  Executor* of(const core::AttemptKey& key) const;
  /// Makes room after so many launches.
  void forget_ended(std::size_t launched);

  Executor& local_;
  Executor& slurm_;
  const std::size_t remembered_;
  std::function<bool(const core::AttemptKey&)> is_over_;
  mutable std::mutex mutex_;
  std::map<core::AttemptKey, Executor*> owners_;  // of attempts launched or adopted; beyond remembered_ ended ones go
  core::AttemptKey looked_at_;                    // last, for room
};

}  // namespace executors
