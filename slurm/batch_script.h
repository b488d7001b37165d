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
  /// true: the path is taken literally, whatever characters it has. false: the path is a Slurm pattern, and Slurm
  /// replaces %j, %x, %A and so on.
  bool literal = false;

  bool operator==(const LogFile&) const = default;
};

/// The elements of an array job.
struct ArrayTasks {
  std::vector<std::uint32_t> tasks{};  // task ids, each once
  std::uint32_t parallelism = 0;       // how many may run at once; 0: as many as fit

  bool operator==(const ArrayTasks&) const = default;
};

/// What the job asks Slurm for. Empty and zero mean not asked; Slurm's default applies.
struct Resources {
  std::uint32_t nodes = 0;
  std::uint32_t tasks = 0;  // --ntasks
  std::uint32_t tasks_per_node = 0;
  std::uint32_t cpus_per_task = 0;
  std::uint32_t cpus_per_gpu = 0;
  std::string gpus{};  // "4", "a100:4"
  std::string gpus_per_node{};
  std::string gpus_per_task{};  // each rank sees only its own GPUs
  std::string gres{};           // "gpu:fake:2"; every rank of a node sees all GPUs of the job there
  std::string mem{};            // "16GB", per node
  std::string mem_per_cpu{};
  std::string mem_per_gpu{};
  std::optional<std::string> exclusive{};  // "": share nodes with no job; "user", "mcs": only with jobs of the same
  std::string constraint{};                // features, "a100&ib"
  std::vector<std::string> node_list{};    // nodes that the job must get
  std::vector<std::string> exclude{};      // nodes that the job must not get
  std::string licenses{};
};

/// Accounting, time limits, queue order and mail.
struct Terms {
  std::string partition{};  // one name, or several with commas
  std::string account{};
  std::string qos{};
  std::string reservation{};
  std::string wckey{};
  std::chrono::minutes time{0};  // whole minutes, as Slurm counts; the caller rounds
  std::string begin{};           // "now+1hour"
  std::string deadline{};
  std::string dependency{};         // "afterok:123:124"
  bool kill_on_invalid_dep = true;  // rendered with a dependency; false: after a failed afterok the job waits for ever
  std::optional<bool> requeue{};    // --requeue, --no-requeue
  std::optional<std::int64_t> nice{};
  bool hold = false;
  std::string mail_type{};
  std::string mail_user{};
};

/// The exit code of a script whose health check failed.
inline constexpr int kUnfitExit = 96;

/// What the script does around the job's command. Members called "lines" are shell code, rendered unchanged.
struct Steps {
  /// A run that Slurm itself restarted exits with 0 at once. The controller submits a replacement for such a run.
  bool leave_when_restarted = false;
  std::vector<std::string> setup{};  // lines before everything else, run in the script's own shell
  /// Lines that decide whether the nodes are fit. Each line is a command. The lines run on each node before the job's
  /// command, in a shell of their own, up to the first that fails. After a failure the script skips the job's command
  /// and exits with kUnfitExit.
  std::vector<std::string> health_check{};
  /// Lines after the command, run however the command ended. The script still exits with the command's exit code.
  std::vector<std::string> teardown{};
};

/// How the command runs.
struct Launch {
  std::vector<std::string> command{};  // literal words; see BatchScript::index_mark
  bool use_srun = true;                // false: run the command once, on the first node
  std::vector<std::string> srun_args{};
  bool kill_on_bad_exit = true;  // srun ends all ranks when one fails
};

/// Everything that one sbatch script says, as plain values.
struct BatchScript {
  std::string name{};
  std::string comment{};        // --comment
  std::string chdir{};          // absolute; empty: the folder where sbatch ran
  LogFile output{};             // stdout and stderr, appended; empty: Slurm's default
  std::string export_policy{};  // --export: "NIL", "ALL"; ranks always get the script's environment
  std::vector<std::pair<std::string, std::string>> environment{};  // exported before setup; any value
  std::optional<ArrayTasks> array{};
  /// The array's task id replaces this text in words of the command, in values of the environment and in a literal log
  /// path. Empty: nothing is replaced.
  std::string index_mark{};
  Resources resources{};
  Terms terms{};
  Steps steps{};
  Launch launch{};
  /// Options applied last, as (option without dashes, value). They override other options of the same name. A bare flag
  /// has no value.
  std::vector<std::pair<std::string, std::optional<std::string>>> additional{};
};

/// What a batch script cannot express, one sentence each. Empty if render() can express all of `script`. Examples: a
/// zero byte, a line break in a partition's name, an invalid environment name, an array without tasks.
std::vector<std::string> problems(const BatchScript& script);

/// The script, for sbatch's standard input. Pure: the same values give the same bytes. Options are sorted by name.
/// Values can never add lines or options. A line break in the name or the comment becomes a space.
std::string render(const BatchScript& script);

/// Quotes one word for a POSIX shell as Python's shlex.quote does.
std::string shell_quote(const std::string& word);
/// Quotes one word for bash on a single line: control characters become $'\n'.
std::string bash_quote(const std::string& word);

}  // namespace slurm
