#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace slurm {

/// Where a log goes.
struct LogFile {
  std::string path{};
  /// true: this very path, whatever characters it has. false: Slurm's pattern, in which %j, %x, %A and so on are
  /// replaced.
  bool literal = false;

  bool operator==(const LogFile&) const = default;
};

/// Elements of an array.
struct ArrayTasks {
  std::vector<std::uint32_t> tasks{};  // task ids, each once
  std::uint32_t parallelism = 0;       // how many may run at once; 0: as many as fit

  bool operator==(const ArrayTasks&) const = default;
};

/// A signal and what the batch script does with it. A signal that is not listed does what it does by default: TERM
/// kills the shell, which ends the job and cuts short every rank's time to save.
struct SignalRule {
  std::string signal{};  // "USR2", "TERM"
  bool forward = false;  // false: the shell only lives on; true: srun gets it and hands it to the ranks,
                         // a second after its start if the signal came before that

  bool operator==(const SignalRule&) const = default;
};

/// --signal: Slurm's warning before the time limit (and, where the cluster is set up so, at preemption).
struct Warning {
  std::string signal = "USR2";
  std::chrono::seconds before_limit{90};  // Slurm looks every 30 s, so it comes up to 30 s early or late
  bool to_batch = false;                  // true: to the batch script only ("B:"); false: to the ranks only

  bool operator==(const Warning&) const = default;
};

/// What the job asks Slurm for. Empty and zero mean: not asked, Slurm's default holds.
struct Resources {
  std::uint32_t nodes = 0;
  std::uint32_t tasks = 0;  // --ntasks
  std::uint32_t tasks_per_node = 0;
  std::uint32_t cpus_per_task = 0;
  std::uint32_t cpus_per_gpu = 0;
  std::string gpus{};  // "4", "a100:4"
  std::string gpus_per_node{};
  std::string gpus_per_task{};  // each rank sees its own GPUs only
  std::string gres{};           // "gpu:fake:2": every rank of a node sees all of the node's
  std::string mem{};            // "16GB", of a node
  std::string mem_per_cpu{};
  std::string mem_per_gpu{};
  std::optional<std::string> exclusive{};  // "": the nodes alone; "user", "mcs": shared with those
  std::string constraint{};                // features, "a100&ib"
  std::vector<std::string> node_list{};    // these nodes
  std::vector<std::string> exclude{};      // not these
  std::string licenses{};
};

/// Who pays, how long, in which order.
struct Terms {
  std::string partition{};  // one, or several with commas
  std::string account{};
  std::string qos{};
  std::string reservation{};
  std::string wckey{};
  std::chrono::minutes time{0};      // rounded by the caller: Slurm counts whole minutes
  std::chrono::minutes time_min{0};  // Slurm may shorten it to this
  std::string begin{};               // "now+1hour"
  std::string deadline{};
  std::string dependency{};         // "afterok:123:124"
  bool kill_on_invalid_dep = true;  // only rendered with a dependency; without it a failed afterok waits for ever
  std::optional<bool> requeue{};    // --requeue, --no-requeue
  std::optional<std::int64_t> nice{};
  bool hold = false;
  std::string mail_type{};
  std::string mail_user{};
};

/// What the script does around the job's command. All texts named "lines" are shell, put in as they are.
struct Steps {
  /// A run that Slurm itself started again leaves at once with 0: it belongs to nobody, another submission replaces it.
  bool leave_when_restarted = false;
  std::vector<std::string> setup{};  // lines before everything else, in the script's own shell
  /// Lines that decide whether the nodes are fit, each a command; run before the job's command, in a shell of their
  /// own, stopping at the first that fails. Then the job's command is not run and the script exits with
  /// health_check_exit.
  std::vector<std::string> health_check{};
  bool health_check_on_each_node = true;  // through srun, one task a node; false: on the first node
  std::uint32_t health_check_exit = 96;
  std::vector<std::string>
      teardown{};  // lines after it, whatever happened. The script's exit code stays the command's.
};

/// How the command runs.
struct Launch {
  std::vector<std::string> command{};  // literal words; see BatchScript::index_mark
  bool use_srun = true;                // false: once, on the first node
  std::vector<std::string> srun_args{};
  LogFile srun_output{};  // of each rank; empty: into the job's log. %t is the rank
  LogFile srun_error{};   // empty: as srun_output
  bool unbuffered = true;
  bool kill_on_bad_exit = true;  // srun ends all ranks when one fails
  std::chrono::seconds wait{0};  // srun --wait: after the first rank left; 0: Slurm's default
  std::vector<SignalRule> signals = {{"TERM", false}};
};

/// Everything that one sbatch script says, as plain values.
struct BatchScript {
  std::string name{};
  std::string comment{};  // --comment
  std::string chdir{};    // absolute; empty: where sbatch ran
  LogFile output{};       // empty: Slurm's default
  LogFile error{};        // empty: with the output
  std::string open_mode = "append";
  std::string export_policy{};  // --export: "NIL", "ALL"; the ranks get the script's environment in any case
  std::vector<std::pair<std::string, std::string>> environment{};  // exported before setup; any value
  std::optional<Warning> warning{};
  std::optional<ArrayTasks> array{};
  /// Each time this text stands in a word of the command, in a value of the environment or in srun's literal log paths,
  /// the array's task id replaces it. Empty: nothing is replaced.
  std::string index_mark{};
  Resources resources{};
  Terms terms{};
  Steps steps{};
  Launch launch{};
  /// Applied last, overriding anything of the same option: (option without dashes, value), no value for a bare flag.
  std::vector<std::pair<std::string, std::optional<std::string>>> additional{};
};

/// What can't be said in a batch script, one sentence each; empty if render() says all of it. Examples: a zero byte, a
/// line break in a partition's name, an environment name that is no name, an array without tasks.
std::vector<std::string> problems(const BatchScript& script);

/// The script, for sbatch's standard input. Pure; the same values give the same bytes. Options are sorted by name.
/// Values can never add lines or options: where a line break can't be carried (name, comment) it becomes a space.
std::string render(const BatchScript& script);

/// Quotes one word for a POSIX shell as Python's shlex.quote does.
std::string shell_quote(const std::string& word);
/// Quotes one word for bash on a single line: control characters become $'\n'.
std::string bash_quote(const std::string& word);

}  // namespace slurm
