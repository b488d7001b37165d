#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "base/fd.h"

namespace base {

/// One program to run.
struct Command {
  std::vector<std::string> argv{};  // argv[0]: a path, or a name to find in PATH
  std::string input{};              // standard input
  std::chrono::milliseconds time_limit{10'000};
  std::size_t max_output_bytes = std::size_t{64} << 20;            // limit for each of stdout and stderr
  std::vector<std::pair<std::string, std::string>> environment{};  // set for the child, over inherited values
  bool inherit = true;  // false: the child gets only `environment`; this process's PATH still finds argv[0]
  std::vector<std::string> unset{};  // names not inherited; a trailing * matches any ending ("SLURM_*")
  std::vector<int> keep_fds{};       // descriptors that the child keeps; all others above 2 are closed
};

/// The outcome of a command. Exactly one of these holds: the command exited, a signal ended it, it ran into the time
/// limit, or it never started.
struct CommandResult {
  int exit_code = -1;  // -1 unless the command exited by itself
  int signal = 0;      // the signal that ended the command, 0 if none; 0 for the kill at the time limit
  std::string out{};   // the first max_output_bytes of stdout
  std::string err{};
  bool out_cut = false;  // stdout was longer
  bool err_cut = false;
  bool timed_out = false;         // the whole process group was killed at the limit
  std::string could_not_start{};  // the reason with the program's name; otherwise empty
  std::chrono::milliseconds took{0};

  bool succeeded() const { return exit_code == 0 && !timed_out && could_not_start.empty(); }
};

/// The path of a program, found as a shell would with this PATH.
std::optional<std::string> find_in(const std::string& path, const std::string& name);
/// The path of a program, found in the same way with the PATH of this process.
std::optional<std::string> find_in_path(const std::string& name);
/// The file of this program. Where it has a loader of its own (tools/package/start.c), the kernel knows the loader
/// alone. Empty: /proc is not there.
std::filesystem::path own_program();
/// The folder from which people start the programs of this project, this one among them.
std::filesystem::path programs_folder();
/// The file of a program of this project: in the folder of this one, or else in PATH; empty: there is none.
std::filesystem::path find_program(const std::string& name);

/// Runs programs. Implementations may be called from several threads at once.
class CommandRunner {
 public:
  virtual ~CommandRunner() = default;

  /// Returns when the program has ended, at the latest at the time limit plus the moment that the kill takes.
  /// Never throws for anything that the program or the system does.
  virtual CommandResult run(const Command& command) = 0;
};

/// Runs real processes. The child leads its own process group, so a signal to this process's group does not reach it,
/// and the kill at the time limit ends the whole group. If this process dies, the kernel ends the child too, unless
/// `outlive_us`. Processes that the child leaves running do not delay run(): it returns once the child has ended and
/// the available output is read.
class ProcessRunner : public CommandRunner {
 public:
  /// outlive_us: a running child continues when this process dies. This suits a submission, which may still succeed.
  /// open_files: the soft limit of open files of the child. sbatch passes that limit on to jobs. 0: the limit of this
  /// process.
  explicit ProcessRunner(bool outlive_us = true, std::uint64_t open_files = 0)
      : outlive_us_(outlive_us), open_files_(open_files) {}
  CommandResult run(const Command& command) override;

 private:
  bool outlive_us_;
  std::uint64_t open_files_;
};

/// A started program. It leads its own process group and has not been reaped.
struct Child {
  pid_t pid = -1;
  Fd out, err;          // the read ends of its stdout and stderr, non-blocking
  Fd exited;            // readable once the child has ended; invalid where the kernel has no pidfd
  std::string why_not;  // why nothing was started; otherwise empty
};

/// The PATH used when none is set.
inline constexpr const char* kPlainPath = "/usr/local/bin:/usr/bin:/bin";

/// Starts the program with this soft limit of open files (0: the limit of this process). Between fork and exec it
/// touches no lock or memory that another thread may hold.
Child start_child(const Command& command, bool dies_with_us, std::uint64_t open_files);

}  // namespace base
