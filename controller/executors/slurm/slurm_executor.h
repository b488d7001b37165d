#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "base/clock.h"
#include "executors/executor.h"
#include "slurm/batch_script.h"
#include "slurm/scheduler.h"

namespace runtime::on_slurm {

struct SlurmOptions {
  /// The data folder, absolute, on a file system that every node sees.
  std::filesystem::path root;
  /// muster-task, absolute, where every node sees it.
  std::filesystem::path task_program;
  /// LD_LIBRARY_PATH that muster-task starts with; see TaskProgram.
  std::string task_libraries = {};
  /// Tells this controller's jobs from others': letters and digits.
  std::string store_name;
  /// Whose jobs are listed: the user musterd submits as.
  std::string user;
  core::Millis poll_interval{1000};
  /// Between listings that cannot wait.
  core::Millis urgent_interval{100};
};

/// Attempts as Slurm jobs, one each (or one array element each), submitted with the attempt's own id in --comment.
///
/// One squeue a poll tells of all of them; muster-task beside each rank tells the rest (see SlurmAttempt). While
/// Slurm can't be reached nothing is concluded and nothing is lost: trouble() says so, and what was to be done is done
/// when it is back.
///
/// Threads: one that asks Slurm and acts, one that passes facts on and lets time pass. Facts come from the second
/// alone.
class SlurmExecutor : public Executor {
 public:
  /// All must outlive the executor.
  SlurmExecutor(::slurm::Scheduler& scheduler, Clock& clock, SlurmOptions options);
  /// shutdown(), if that was not called.
  ~SlurmExecutor() override;

  std::string name() const override { return "slurm"; }
  void start(FactSink sink) override;
  void set_history(std::function<bool(const core::AttemptKey&)> is_over) override;
  void set_lost_nodes(std::function<LostNodes()> lost) override;
  LaunchAnswer launch(const LaunchRequest& request) override;
  std::vector<LaunchAnswer> launch_all(const std::vector<LaunchRequest>& requests) override;
  std::optional<LaunchAnswer> withdraw(const LaunchRequest& request) override;
  void adopt(const core::AttemptKey& key, const core::Attempt& attempt) override;
  void stop(const core::AttemptKey& key, const StopRequest& how) override;
  Vouch vouch(const core::AttemptKey& key, core::RankNumber rank) override;
  void was_deaf() override;
  HoldAnswer hold(const core::AttemptKey& key, bool hold) override;
  LimitAnswer limit(const core::AttemptKey& key, core::Millis limit) override;
  void failing(const core::AttemptKey& key, core::RankNumber rank) override;
  void task(const core::AttemptKey& key, core::RankNumber rank, const TaskReport& report) override;
  bool has_queue(const std::string&) const override { return true; }
  std::vector<std::string> scripts(const std::vector<LaunchRequest>& requests) override;
  ScriptCheck check_script(const std::string& script) override;
  std::optional<Trouble> trouble() const override;
  std::optional<QueueWord> queue_word(const core::AttemptKey& key) const override;
  std::optional<ClusterFacts> cluster() override;
  void shutdown() override;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace runtime::on_slurm
