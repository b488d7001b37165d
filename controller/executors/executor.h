#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "agent/protocol/files.h"
#include "agent/protocol/launch.h"
#include "controller/core/apply.h"
#include "controller/core/job.h"
#include "spec/report_keys.h"
#include "spec/variables.h"

namespace executors {

/// A GPU of musterd's own machine, or a part of one (MIG), as a program can be given it.
struct OwnGpu {
  std::uint32_t number = 0;  // for people: the driver's, else what --local-gpus says, else the place in that list
  std::string id;            // as CUDA_VISIBLE_DEVICES names it: "GPU-5b1b...", "MIG-..."
  std::string name = {};     // of its kind; empty: not known
  core::GpuIdentity known = {};
  bool is_part() const { return id.starts_with("MIG-"); }
  bool operator==(const OwnGpu&) const = default;
};

/// Tells whether two names mean the same GPU, or one that is a part of the other. kUnknown: they may.
enum class Overlap { kNone, kUnknown, kSame };
/// Pure. UUIDs decide where both are known, else numbers. A name counts for what it tells: "0" is a number, "GPU-5b1b"
/// the beginning of a UUID.
Overlap overlap(const std::string& name, const core::GpuIdentity& known, const std::string& other_name,
                const core::GpuIdentity& other_known);
/// The identity of a GPU as far as its name alone tells it.
core::GpuIdentity identity_by_name(const std::string& name);

/// The resources that attempts on musterd's own machine share.
struct OwnMachine {
  std::string name = {};  // the host's
  std::vector<OwnGpu> gpus = {};
  std::string gpus_from = {};    // where that list is from, or why it is empty; for people
  std::string gpus_remedy = {};  // what would make it longer
  std::string problem = {};      // why jobs get no GPU though the machine has some, with the remedy; empty: they do
  std::uint32_t cores = 0;       // that jobs may ask for; 0: cores are not counted
  /// `gpus` is empty, and yet there are some, or nobody knows: a rank that is given none sees none. Otherwise ranks see
  /// what musterd itself may see where `gpus` is empty.
  bool hides_gpus = false;
  /// There are GPUs that the driver does not list now: jobs wait for them, and musterd asks again.
  bool is_unsure = false;
  bool operator==(const OwnMachine&) const = default;
};

/// The resources that a job asks of musterd's own machine.
struct MachineWish {
  std::uint32_t ranks = 1;
  std::uint32_t cpus_of_rank = 0;  // 0: not said, so its cores are not counted
  std::uint32_t gpus_of_rank = 0;
  bool chooses_gpus = false;  // its own CUDA_VISIBLE_DEVICES says which GPUs it uses, so muster gives it none
};

/// The resources that an attempt must be given before it starts.
struct MachineNeed {
  std::uint32_t gpus = 0;
  std::uint32_t cores = 0;
  bool whole_gpus = false;  // a rank wants several, and a process can use one part of a GPU at most
  bool empty() const { return gpus == 0 && cores == 0; }
  bool takes(const OwnGpu& gpu) const { return !whole_gpus || !gpu.is_part(); }
  bool operator==(const MachineNeed&) const = default;
};

/// One thing that an executor can never do, asked for in a job file.
struct Unfit {
  std::string field;   // key of the job file: "resources.nodes"
  std::string value;   // as people write it
  std::string wanted;  // "want 1: local processes run on this machine alone"
  std::string remedy;
};

/// True if a job's own variables say which GPUs it uses. `env`: a map by name.
template <typename Variables>
bool chooses_gpus(const Variables& env) {
  return env.find("CUDA_VISIBLE_DEVICES") != env.end();
}
/// Pure.
MachineNeed need_of(const OwnMachine& machine, const MachineWish& wish);
/// How many of the machine's GPUs such a job could ever get.
std::uint32_t most_gpus(const OwnMachine& machine, const MachineNeed& need);
/// The parts of a wish that the machine can never give, each with its remedy. Pure.
std::vector<Unfit> unfit_for(const OwnMachine& machine, const MachineWish& wish);

/// Facts that a scheduler tells about one of its partitions.
struct PartitionFacts {
  std::string name, state, node_list, preempt_mode;
  bool is_default = false;
  std::uint32_t nodes = 0, cpus = 0, priority_tier = 0;
  std::optional<core::Millis> max_time, default_time;  // nothing: unlimited; max_time
  std::optional<std::uint32_t> max_nodes;              // nothing: unlimited
  core::Millis grace{0};
  std::vector<std::string> allow_groups, allow_accounts, allow_qos;  // empty: all
  bool operator==(const PartitionFacts&) const = default;
};

/// Facts that a scheduler tells about one of its nodes.
struct NodeFacts {
  std::string name, state, reason;  // state: "MIXED+DRAIN"; "*" at the end: it does not answer
  bool usable = true;               // up and not drained
  std::uint32_t cpus = 0, cpus_used = 0;
  std::int64_t memory_bytes = 0, memory_used_bytes = 0;
  std::string gres, gres_used;
  std::vector<std::string> partitions;
  bool operator==(const NodeFacts&) const = default;
};

/// A cluster as its scheduler described it last.
struct ClusterFacts {
  std::vector<PartitionFacts> partitions;
  std::vector<NodeFacts> nodes;
  std::string unreachable;  // not empty: why it could not be asked now; the rest is old, or missing

  const PartitionFacts* find(const std::string& name) const {
    for (const auto& partition : partitions) {
      if (partition.name == name) return &partition;
    }
    return nullptr;
  }
  /// False: nothing was ever heard.
  bool known() const { return !partitions.empty(); }
};

/// Settings that only Slurm reads.
struct SlurmWishes {
  /// Options of sbatch by their long names, the cores and GPUs of a rank included; without a value: a bare flag.
  std::map<std::string, std::optional<std::string>> options;
  std::string output;                   // where people look for a rank's log besides
  std::uint32_t array_parallelism = 0;  // elements of one array that may run at once; 0: any number
  std::vector<std::string> setup, teardown, srun_args;
  std::string health_check;

  /// The option's value; empty: there is none.
  std::string option(const std::string& name) const {
    const auto found = options.find(name);
    return found == options.end() ? std::string() : found->second.value_or("");
  }
  bool operator==(const SlurmWishes&) const = default;
};

/// Everything an executor needs to start an attempt; the same on local processes and on Slurm.
struct LaunchRequest {
  core::AttemptKey key;
  std::string job_name;
  std::uint32_t nodes = 1;
  std::uint32_t ranks_per_node = 1;
  MachineWish wish;               // where it runs on musterd's own machine
  std::vector<std::string> argv;  // the program of one rank
  spec::Environment base_env;     // what a rank's environment begins with; on Slurm sbatch's whole one
  spec::Environment env;          // the user's and muster's own; never overwritten by the rank variables
  std::string working_folder;     // absolute
  std::string log_folder;         // absolute; one file a rank: rank-<n>.log
  core::Millis time_limit{0};
  core::Millis stop_grace{0};
  std::string executor;       // "auto", "local", "slurm"
  bool own_launcher = false;  // the program starts its ranks itself: one process a node
  /// The program starts its tasks itself, on all nodes: one process, on the first node.
  std::optional<agent::protocol::BatchTasks> batch = {};
  bool is_command = false;     // any program, rather than muster-worker
  std::string attempt_folder;  // absolute; exists if `prepared`
  std::string fence_folder;    // where this attempt's fence was raised; empty: nowhere
  std::string sweep;           // empty: it goes alone. Attempts of one sweep may be handed to a scheduler together
  std::vector<std::string> exclude_nodes;  // lost lately
  SlurmWishes slurm;
  spec::ReportSources report;
  bool prepared = true;      // what must lie on disk before the ranks start is there; see AttemptLauncher::prepares()
  std::string run_file;      // else: the text of the file that MUSTER_RUN_FILE names; empty: there is none
  std::string cache_folder;  // else: the folder of prepared text; empty: none is needed
  std::optional<core::MachineShare> share = {};  // what it was given of musterd's own machine

  /// The processes that muster starts.
  std::uint32_t ranks_of_node() const { return batch ? 1 : ranks_per_node; }
  std::uint32_t ranks() const { return batch ? 1 : nodes * ranks_per_node; }
};

/// Work that could not be carried out is tried again after this pause, unless somebody says otherwise.
inline constexpr core::Millis kTryAgainAfter{1000};

/// The executor can't tell whether it can start it, or can't now: nothing is lost, ask again after a pause.
struct LaunchLater {
  std::string why;
  core::Millis pause = kTryAgainAfter;
  std::string remedy = "It starts by itself.";  // what people can do, for `muster why`
  bool unsure = false;                          // it may have been started
  bool operator==(const LaunchLater&) const = default;
};
/// kRefused: there is nothing to be done, now or later. kLater: ask again.
enum class HoldAnswer { kDone, kRefused, kLater };
using LaunchAnswer = std::variant<core::AttemptLaunched, core::AttemptLaunchFailed, LaunchLater>;

/// The report of muster-agent about a rank that it stands beside.
struct TaskReport {
  enum class Process { kStarting, kRunning, kStopped, kExited, kStepLost };
  Process process = Process::kStarting;
  std::string node;
  std::int64_t pid = 0;
  core::ExitStatus exit;  // of kExited and kStepLost
  bool out_of_memory = false;
  std::vector<int> signals_seen;  // from outside, in order
  std::string trouble;            // why it could not be started; empty otherwise
  core::Millis ended_at{0};       // since 1970, by its node's clock; 0: not known
  std::string error = {};         // the program's own words about its end; empty: it left none
  bool operator==(const TaskReport&) const = default;
};
bool has_ended(const TaskReport& report);

/// Why an executor's scheduler can't be asked, and since when.
struct Trouble {
  core::Time since{};
  std::string why;
};

/// "unreachable since 2026-11-20 19:45:24 UTC: squeue gave no answer".
std::string unreachable_text(const Trouble& trouble);
/// The text of unreachable_text() with its subject: "scheduler unreachable since ...".
std::string trouble_text(const Trouble& trouble);

/// The result of giving an attempt a new time limit.
struct LimitAnswer {
  enum class Kind {
    kTaken,    // or only muster itself keeps it
    kLater,    // not now, ask again
    kRefused,  // the scheduler's last word
  };
  Kind kind = Kind::kTaken;
  std::string why = {};  // of a refusal
};

/// Facts that are known about an attempt's place in a scheduler's queue.
struct QueueWord {
  std::string scheduler_job;     // "1234"
  std::string reason;            // the scheduler's own word: "Priority"; empty: none
  std::string sentence, action;  // for people
  std::optional<core::Time> expected_start;
  std::optional<core::Time> suspended_since = {};  // of one that runs: the scheduler has stopped it
  std::optional<core::Millis> unheard_for = {};    // of one that runs: no task of it has ever been heard
};

/// The scheduler's answer about a job before the job is submitted.
struct ScriptCheck {
  std::string unreachable;  // why it could not be asked; empty: it answered
  std::string refusal;      // its own words; empty: it would take it
  std::optional<core::Time> start;
  std::string partition, nodes;
  std::uint32_t cpus = 0;
};

/// How a stop is carried out: SIGTERM to every rank's process group, SIGKILL after the grace.
struct StopRequest {
  core::Millis grace{0};
  bool save = false;                       // ranks are to save first
  std::string why = {};                    // for their programs, as stop_word() says it; empty: they are not told
  std::optional<core::Step> at_step = {};  // all ranks leave after this step; nullopt: each at once
};
/// Why ranks are asked to leave, as the file that MUSTER_STOP names tells their programs.
std::string stop_word(core::Cause cause);

/// Takes what happens to attempts. Called from an executor's own thread; returns quickly.
using FactSink = std::function<void(core::JobId, core::EventBody)>;

/// A node's word on a rank's process, asked for when its heartbeats stop. kEnded: its end is known, and told as soon as
/// the executor knows what it means; that executor answers for how long this takes. kSuspended: the scheduler has
/// stopped it, with all that could speak for it, and will let it go on. kNodeAnswers: nothing is heard of the process,
/// but its node is there. kAsking: whether the node is there is being found out.
enum class Vouch { kAlive, kStopped, kSuspended, kEnded, kGone, kUnknown, kNodeAnswers, kAsking };

/// A node that was lost, or is not fit to run ranks, gets none for so long, as far as others can be had.
inline constexpr core::Millis kExcludedFor{600'000};
/// At most so many of them are left out.
inline constexpr std::uint32_t kMostExcluded = 256;
/// Such nodes, each with the job that alone is kept off it; 0: all are.
using LostNodes = std::vector<std::pair<std::string, core::JobId>>;
/// Those that concern a job.
std::vector<std::string> kept_off(core::JobId job, const LostNodes& lost);

/// The words in a job's log before the name of a node on which a health check failed.
inline constexpr std::string_view kUnfitMark = "muster: the health check failed on ";

/// The words after that name where the check is the job file's own.
inline constexpr std::string_view kOwnCheckMark = " (of this job alone)";

/// Returns the check, which then also writes into the job's log on which node it failed, and `whose` after that.
std::string telling_check(const std::string& check, std::string_view whose = {});
/// A check that is the job file's own, with its failure told so: others are not kept from the node.
std::string own_check(const std::string& check);

/// The part of an executor that starts attempts. It is asked directly, however many executors there are.
class AttemptLauncher {
 public:
  virtual ~AttemptLauncher() = default;
  virtual LaunchAnswer launch(const LaunchRequest& request) = 0;
  /// Launches several attempts of one sweep like launch(); the answers come in order. A launcher that can hands them
  /// over together.
  virtual std::vector<LaunchAnswer> launch_all(const std::vector<LaunchRequest>& requests) {
    std::vector<LaunchAnswer> answers;
    for (const auto& request : requests) answers.push_back(launch(request));
    return answers;
  }
  /// True if launch_all() makes what must lie on disk before the ranks of an attempt start, where that is not done yet
  /// (LaunchRequest::prepared): see agent/watch/agent_files.h. An attempt that waits for its turn then costs no files.
  virtual bool prepares() const { return false; }
  /// The attempt, which launch() was asked for, is not to start any more. The answer of that launch() where there is,
  /// or may be, an attempt already; nullopt: there surely is none. Nothing is started.
  virtual std::optional<LaunchAnswer> withdraw(const LaunchRequest&) { return std::nullopt; }
};

/// Starts, stops and follows attempts. Contract (one suite for every executor):
/// - launch() of its launcher is idempotent by key: if the attempt was started before (by this process or an earlier
///   one that crashed), it is found, not started again.
/// - after a restart, adopt() finds a launched attempt again: its later facts arrive, those missed meanwhile too. If
///   nothing is left of it, AttemptGone arrives.
/// - RankExited arrives once for each rank that ended, within milliseconds of its end.
/// - stop() returns at once and may be repeated; the ends arrive as facts.
/// - An executor with a queue answers launch() with AttemptLaunched{queued}, and tells AttemptStarted later.
/// - Trouble in asking (a scheduler that does not answer) is never reported as the end of anything.
class Executor {
 public:
  virtual ~Executor() = default;
  virtual std::string name() const = 0;  // "local", "slurm"
  /// Before start(): whether an attempt is over, as the store has it.
  virtual void set_history(std::function<bool(const core::AttemptKey&)>) {}
  /// Before start(): the nodes left out now. An attempt that waits longer than one of its nodes is left out may have
  /// it.
  virtual void set_lost_nodes(std::function<LostNodes()>) {}
  /// `changed` is called after each change of own_machine(), in the thread that calls learn(). Before start().
  virtual void set_machine_sink(std::function<void()> /*changed*/) {}
  /// Why such a job can never run here, known before anything is started or kept; empty: it may. Looks at `executor`,
  /// the resources and the scheduler's wishes alone.
  virtual std::vector<Unfit> unfit(const LaunchRequest&) const { return {}; }
  /// Before any other call. Facts may arrive from then on.
  virtual void start(FactSink sink) = 0;
  /// Who launches this attempt. Whoever asks is about to launch it, or to withdraw that.
  virtual AttemptLauncher& launcher(const LaunchRequest& request) = 0;
  /// True if something of an attempt that is not to run may still do so, after a stop. Where a scheduler ends it, the
  /// attempt has nothing of musterd's own machine, and the answer is no.
  virtual bool is_there(const core::AttemptKey&) { return false; }
  virtual void adopt(const core::AttemptKey& key, const core::Attempt& attempt) = 0;
  virtual void stop(const core::AttemptKey& key, const StopRequest& how) = 0;
  virtual Vouch vouch(const core::AttemptKey& key, core::RankNumber rank) = 0;
  /// True if there are agents beside the attempt's ranks, which can be asked for their stacks (agent/protocol/files.h).
  /// They hear of it with the answers to what they say. Returns at once.
  virtual bool ask_stacks(const core::AttemptKey&, std::uint64_t /*number*/) { return false; }
  /// The controller was deaf until now (see Hearing): nothing is to be concluded from what was not heard before.
  virtual void was_deaf() {}
  /// Call it often. What tasks sent before `read_until` (monotonic) has been read, see Reading. No task is missed
  /// before it is unheard for `missed_after`, see Pace.
  virtual void tasks_read(core::Millis /*read_until*/, core::Millis /*missed_after*/) {}
  /// Keeps a queued attempt from starting, or lets it start.
  virtual HoldAnswer hold(const core::AttemptKey&, bool) { return HoldAnswer::kDone; }
  /// The attempt is to have this time limit; 0: none.
  virtual LimitAnswer limit(const core::AttemptKey&, core::Millis) { return {}; }
  /// Takes what muster-agent said.
  virtual void task(const core::AttemptKey&, core::RankNumber, const TaskReport&) {}
  /// A rank has said that it leaves because of an error of its own or of another; it is still there.
  virtual void failing(const core::AttemptKey&, core::RankNumber) {}
  /// True if attempts of a job with this `executor` ("auto" ...) wait in a scheduler's queue.
  virtual bool has_queue(const std::string&) const { return false; }
  /// The scripts that launch_all() would submit, of attempts never launched before; of those that go alone and ask for
  /// the same, the first one's. None: this one needs no script.
  virtual std::vector<std::string> scripts(const std::vector<LaunchRequest>&) { return {}; }
  /// The scheduler's answer about one of these scripts.
  virtual ScriptCheck check_script(const std::string&) { return {}; }
  /// The resources of musterd's own machine that the executor's attempts share, as far as they are known now.
  virtual OwnMachine own_machine() const { return {}; }
  /// More of musterd's own machine is known from now on.
  virtual void learn(OwnMachine) {}
  /// The names that a job file may use: "local", "slurm"; the first is what "auto" means.
  virtual std::vector<std::string> names() const { return {name()}; }
  virtual std::optional<Trouble> trouble() const { return std::nullopt; }
  virtual std::optional<QueueWord> queue_word(const core::AttemptKey&) const { return std::nullopt; }
  /// The scheduler's facts about partitions and nodes; nullopt: there is no scheduler. Takes as long as asking does.
  virtual std::optional<ClusterFacts> cluster() { return std::nullopt; }
  /// Stops following; attempts go on without the controller.
  virtual void shutdown() = 0;
};

/// Local processes and Slurm behind one executor: each attempt has the launcher that its job file names, "auto" that of
/// Slurm, and later calls about it go to the same executor. Thread-safe as the two are, which must outlive it. Of
/// attempts that were launched or adopted it remembers the executor. Beyond `remembered` of them, those that are over
/// are forgotten.
std::unique_ptr<Executor> make_routing_executor(Executor& local, Executor& slurm, std::size_t remembered = 100'000);

}  // namespace executors
