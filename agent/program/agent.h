#pragma once

#include <signal.h>

#include <atomic>
#include <chrono>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "agent/beside/sidecar.h"
#include "agent/process/gang.h"
#include "agent/process/orphans.h"
#include "agent/program/controller_link.h"
#include "agent/program/rank_environment.h"
#include "agent/program/status_log.h"
#include "agent/protocol/facts.h"
#include "agent/stacks/take.h"
#include "agent/use/sampler.h"
#include "base/cgroups.h"
#include "base/fd.h"

namespace agent::program {

/// How an agent ends what ranks have left behind, and how long it waits for what SIGKILL does not end at once.
struct Ending {
  std::function<std::string(std::chrono::milliseconds)> children = [](auto patience) {
    return process::end_children(patience);
  };
  std::function<std::string(const process::AttemptMark&, std::chrono::milliseconds)> earlier =
      [](const auto& mark, auto patience) { return process::end_earlier_attempts(mark, patience); };
  std::chrono::milliseconds told_after{5'000};  // that something does not end
  std::chrono::milliseconds longest{600'000};   // then
};

/// The settings that an agent starts with.
struct AgentSetup {
  std::filesystem::path attempt_folder;
  protocol::Launch launch;
  spec::Environment inherited;        // of this process
  std::filesystem::path oom_counter;  // see base::OomWatch
  ConnectToController connect;
  beside::ConnectRank report = {};
  use::SamplerOptions use = {};
  Ending ending = {};
  bool has_keeper = false;  // see agent/process/orphans.h
  /// For tests of crashes: called at "forked", "recorded", "running" and "exited".
  std::function<void(std::string_view)> on_step = {};
};

/// The life of muster-agent beside its ranks: all ranks of an attempt on musterd's own machine, one rank on Slurm.
///
///   constructed: signals are blocked, the controller is told "starting"
///       |  the attempt is over already, its fence is raised, or a program cannot be executed --> ended, code 127
///       v
///       |  On Slurm: a process of an earlier attempt does not end: the agent waits, and gives up after
///       Ending::longest.
///       v
///   started: the ranks are processes, which wait until the start is written down
///       v
///   running: the ranks are vouched for, their signals and stops are told
///       |  Programs end by themselves. Or the agent kills them: a stop was not obeyed in time, or Slurm has lost sight
///       |  of this process.
///       v
///   ended: the controller is told how, in the order of the ends, and so is the status file
///
/// With the last end of an attempt the next attempt may start. So an agent that has all ranks of its attempt holds the
/// last end back until nothing is left of them. An agent of one rank among others tells the end, since the other ranks
/// must not wait for it, and stays itself until nothing is left: Slurm's job is not over before.
///
/// Each fact is written down in a second thread, and told without waiting for the disk. If this process dies, the
/// kernel kills its ranks. All calls come from one thread.
class Agent {
 public:
  /// Blocks the signals of the calling thread that an agent listens to. Throws std::runtime_error or
  /// std::invalid_argument when the environment or the launch file makes no sense.
  explicit Agent(AgentSetup setup);

  /// Starts the ranks, calls `running`, and returns when no process of them is left. Returns the exit code for this
  /// process: the first rank's own, or 128 + its signal.
  ///
  /// Ranks that can't be started are told to the controller on Slurm. On musterd's own machine, where somebody waits
  /// for the start, it throws process::LaunchError or another exception; then nothing runs.
  int run(const std::function<void()>& running = [] {});

  /// From here on the next attempt may start: called once nothing is left, and all is written down.
  std::function<void()> on_over = [] {};

 private:
  using Clock = std::chrono::steady_clock;
  using Millis = std::chrono::milliseconds;
  struct Rank {
    environment::RankPlace place;
    muster::v1::TaskRequest told;
    std::optional<beside::Sidecar> sidecar;
    bool is_alive = false;
    bool is_stopped = false;
    spec::ExitStatus exit;
  };
  /// The end of a rank whose last reports may be on their way.
  struct Leaving {
    std::size_t index = 0;
    protocol::Exited end;
    Clock::time_point since;
  };

  bool has_all_ranks() const { return launch_.local.has_value(); }
  void step(std::string_view name) const {
    if (setup_.on_step) setup_.on_step(name);
  }
  // The start.
  void catch_signals();
  void start_reporting();
  void heard(const muster::v1::TaskResponse& answer);
  void start();
  void make_sidecars();
  void record_start();
  void abandon(const process::LaunchError& failure);
  void follow_ranks();
  void plan_save();
  int finish_unstarted(const std::string& why);
  // While ranks run.
  void turn();
  Millis patience() const;
  void read_signals();
  void note_signal(int number);
  void reap();
  void take_directive();
  void stop(const muster::v1::TaskResponse& how);
  /// Writes the notice of a stop for programs. Returns the ranks that look for it by themselves, and need no signal.
  std::set<std::uint32_t> tell_why(const watch::StopNotice& how) const;
  void look_at_parent();
  void look_at_limit();
  void look_at_use();
  void look_at_stopped();
  void kill();
  void signal_living(int number) const;
  void ask_to_leave(std::size_t index) const;
  // The end.
  void rank_ended(std::size_t index, spec::ExitStatus exit);
  bool may_be_for_memory(const spec::ExitStatus& exit) const;
  std::string last_words(const Rank& rank);
  void record_told_ends();
  bool may_be_told(const Leaving& leaving);
  bool is_nothing_left();
  void finish();
  void tell_what_is_left();
  void stay_beside();

  void record(const protocol::Fact& fact);
  void tell(Rank& rank, muster::v1::ProcessState state);
  void say(const Rank& rank, const std::string& words) const;
  bool any_alive() const;

  const AgentSetup setup_;
  const protocol::Launch& launch_ = setup_.launch;
  const AgentPlace place_;
  const rank::RankEnvironment environment_;
  std::vector<Rank> ranks_;
  std::optional<rank::Endpoint> meeting_point_;
  StatusLog log_;
  std::optional<StatusWriter> writer_;  // begun after all forks
  const bool counts_alone_;             // the counter of kills for memory counts this agent's ranks alone
  base::OomWatch oom_;
  std::unique_ptr<process::Gang> gang_;
  base::Fd signals_, directives_, parent_;
  pid_t parent_id_ = 0;
  std::vector<int> signals_seen_;  // from outside, in order; of each number the first few
  bool asked_ = false, peer_failed_ = false, killed_ = false, step_lost_ = false, failed_ = false;
  bool files_answer_ = true;  // the file system of the ranks' logs has answered each time
  bool controller_knows_end_ = false;
  std::optional<Clock::time_point> kill_at_, save_at_;
  Clock::time_point limit_at_{};
  std::deque<Leaving> leaving_;
  std::optional<Clock::time_point> give_up_ending_at_;  // once something has not ended by SIGKILL
  Clock::time_point look_for_left_at_{};
  std::string left_;  // behind by the ranks, and not ended yet
  std::optional<use::Sampler> sampler_;
  std::atomic<muster::v1::Directive> directive_{muster::v1::DIRECTIVE_CONTINUE};
  std::mutex answer_mutex_;
  muster::v1::TaskResponse answer_;       // the one that brought the directive
  std::unique_ptr<ControllerLink> link_;  // its thread uses the others
  std::optional<stacks::Taker> stacks_;   // last: its thread uses the link
};

struct LocalStart {
  std::filesystem::path folder;  // of the attempt
  /// true: protocol::kLockFd and kReportFd are there. false: started by hand; takes the lock itself.
  bool started_by_executor = false;
  ConnectToController connect;
  beside::ConnectRank report = {};
  std::filesystem::path oom_counter = base::OomWatch::best_counter_file();
  /// For tests: changes the setup before the agent is made.
  std::function<void(AgentSetup&)> change = [](AgentSetup&) {};
};

/// muster-agent on musterd's own machine: goes to the background, and starts what launch.json says unless status.jsonl
/// shows that it was started before. Tells who has started it, by a pipe, that all programs were executed, or why not.
/// Holds the attempt's lock until no process of the attempt is left and all is written down.
///
/// The calling process must have one thread. It does not react to SIGTERM, SIGINT and SIGHUP. Returns the process's
/// exit status.
int start_locally(const LocalStart& how);

}  // namespace agent::program
