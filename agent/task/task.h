#pragma once

#include <signal.h>

#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>

#include "agent/beside/sidecar.h"
#include "agent/process/orphans.h"
#include "agent/protocol/launch.h"
#include "agent/rank/environment.h"
#include "agent/stacks/take.h"
#include "agent/task/controller_link.h"
#include "agent/task/rank_process.h"
#include "agent/task/status_file_writer.h"
#include "agent/use/sampler.h"
#include "agent/watch/agent_files.h"
#include "base/cgroups.h"
#include "base/fd.h"
#include "spec/variables.h"

namespace agent::task {

/// How a task ends what ranks have left behind, and how long it waits for what SIGKILL does not end at once.
struct Ending {
  std::function<std::string(std::chrono::milliseconds)> children = [](auto patience) {
    return process::end_children(patience);
  };
  std::function<std::string(const process::AttemptMark&, std::chrono::milliseconds)> earlier =
      [](const auto& mark, auto patience) { return process::end_earlier_attempts(mark, patience); };
  std::chrono::milliseconds told_after{5'000};
  std::chrono::milliseconds longest{600'000};
};

/// The settings that a task starts with.
struct TaskSetup {
  std::filesystem::path attempt_folder;
  protocol::TaskLaunch launch;
  spec::Environment inherited;        // of this process
  std::filesystem::path oom_counter;  // see base::OomWatch
  ConnectToController connect;
  beside::ConnectRank report = {};
  use::SamplerOptions use = {};
  Ending ending = {};
  bool has_keeper = false;  // see agent/process/orphans.h
};

/// One rank on Slurm from its start to its end.
///
///   constructed: signals are blocked, the controller is told "starting"
///       |  the attempt is over already, its fence is raised, or the program cannot be executed --> ended, code 127
///       v
///       |  a process of an earlier attempt does not end: the task waits, and gives up after Ending::longest
///       v
///   running: the program is vouched for, its signals and stops are told
///       |  The program ends by itself. Or the task kills it: a stop was not obeyed in time, or Slurm has lost sight of
///       |  this process.
///       v
///   ended: the controller is told how, and so is the status file. The task stays while a process of its rank does.
class Task {
 public:
  /// Blocks the signals of the calling thread that a task listens to. Throws std::runtime_error or
  /// std::invalid_argument when the environment or the launch file makes no sense.
  explicit Task(TaskSetup setup);

  /// Returns the exit code for this process: the program's own, or 128 + its signal.
  int run();

 private:
  using Clock = std::chrono::steady_clock;
  using Millis = std::chrono::milliseconds;

  void catch_signals();
  void start_reporting();
  void heard(const muster::v1::TaskResponse& answer);
  process::GangPlan plan();
  rank::Endpoint meeting_point();
  watch::RankFiles files() const;
  bool is_fenced() const;
  bool end_earlier();
  void say(const std::string& words) const;
  void stay_beside(const std::string& left);
  void link_log() const;
  void plan_save();
  spec::Environment agents_environment(const spec::Environment& rank) const;
  void tell_last_reports();
  void tell_what_is_left();
  void watch_use();

  void watch();
  void take_signals();
  void read_signals();
  bool take_ends(int& code);
  void take_directive();
  void look_at_parent();
  void look_at_limit();
  void look_at_use();
  void kill();
  bool may_be_for_memory() const;
  bool tell_why(const std::string& why, bool save, Millis until_kill, std::optional<std::int64_t> at_step = {});

  void tell(muster::v1::ProcessState state);
  void fill_request(muster::v1::ProcessState state);
  int finish();
  int finish_unstarted(const std::string& why);
  int last_word(muster::v1::ProcessState state);
  void hear_late_signals();
  std::string last_words() const;

  const TaskSetup setup_;
  const protocol::TaskLaunch& launch_ = setup_.launch;
  rank::RankEnvironment environment_;
  protocol::RankStatus status_;
  std::optional<StatusFileWriter> file_;
  const bool counts_alone_;  // the counter of kills for memory counts this task's processes alone
  base::OomWatch oom_;
  muster::v1::TaskRequest told_;
  std::optional<RankProcess> process_;
  base::Fd signals_, directives_, parent_;
  pid_t parent_id_ = 0;
  bool ended_ = false, stopped_ = false, asked_ = false, killed_ = false, step_lost_ = false;
  bool told_why_ = false, peer_failed_ = false, controller_knows_end_ = false;
  std::atomic<muster::v1::Directive> directive_{muster::v1::DIRECTIVE_CONTINUE};
  std::mutex answer_mutex_;
  muster::v1::TaskResponse answer_;  // the one that brought the directive
  std::optional<Clock::time_point> kill_at_, save_at_;
  Clock::time_point limit_at_{};
  std::optional<beside::Sidecar> sidecar_;
  std::optional<use::Sampler> sampler_;
  std::unique_ptr<ControllerLink> link_;  // its thread uses the others
  std::optional<stacks::Taker> stacks_;   // last: its thread uses the link
};

}  // namespace agent::task
