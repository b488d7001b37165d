#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
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

/// Options of sbatch by their long names, without dashes. Without a value: a bare flag.
using Options = std::map<std::string, std::optional<std::string>>;

/// The exit code of a script whose health check failed.
inline constexpr int kUnfitExit = 96;

/// Steps of the script around the job's command. Members called "lines" are shell code, rendered unchanged.
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

/// How srun runs the command.
struct Launch {
  std::vector<std::string> command{};  // literal words; see BatchScript::index_mark
  std::vector<std::string> srun_args{};
  bool kill_on_bad_exit = true;  // srun ends all ranks when one fails
  /// The command runs in the script itself, once and without srun, and gets the signals that Slurm sends to the script
  /// alone (--signal=B:USR1).
  bool in_script = false;
};

/// Everything that one sbatch script says, as plain values.
struct BatchScript {
  std::string name{};
  std::string comment{};  // --comment
  std::string chdir{};    // absolute; empty: the folder where sbatch ran
  LogFile output{};       // stdout and stderr, appended; empty: Slurm's default
  std::optional<ArrayTasks> array{};
  /// The array's task id replaces this text in words of the command and in a literal log path. Empty: nothing is
  /// replaced.
  std::string index_mark{};
  Steps steps{};
  Launch launch{};
  /// All that is asked of Slurm besides. These options override those that the members above become.
  Options options{};
};

/// Contents that a batch script cannot express, one sentence each. Empty if render() can express all of `script`.
/// Examples: a zero byte, a line break in a partition's name, an invalid environment name, an array without tasks.
std::vector<std::string> problems(const BatchScript& script);

/// The script, for sbatch's standard input. Pure: the same values give the same bytes. Options are sorted by name.
/// Values can never add lines or options. A line break in the name or the comment becomes a space.
std::string render(const BatchScript& script);

/// Quotes one word for a POSIX shell as Python's shlex.quote does.
std::string shell_quote(const std::string& word);
/// Quotes one word for bash on a single line: control characters become $'\n'.
std::string bash_quote(const std::string& word);

/// True if the text has a character below the space, or DEL. An #SBATCH line cannot contain those.
bool has_control(std::string_view text);

/// True if the text can be the long name of an option: lower-case letters, digits and dashes.
bool is_option_name(std::string_view name);

/// The path as a Slurm pattern. In a literal path each % is doubled, and %a replaces the index mark.
std::string log_pattern(const LogFile& log, const std::string& index_mark);

}  // namespace slurm
