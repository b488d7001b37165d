#pragma once

#include <sys/types.h>

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace slurm {

/// One program to run.
struct Command {
  std::vector<std::string> argv{};  // argv[0]: a path, or a name to look for in PATH
  std::string input{};              // its standard input
  std::chrono::milliseconds time_limit{10'000};
  std::size_t max_output_bytes = std::size_t{64} << 20;            // of each of stdout and stderr
  std::vector<std::pair<std::string, std::string>> environment{};  // set for the child; replaces what is inherited
  bool inherit = true;  // false: `environment` is all of it; argv[0] is looked for in our own PATH all the same
  std::vector<std::string> unset{};  // names not inherited; a trailing * stands for any ending ("SLURM_*")
  std::vector<int> keep_fds{};       // descriptors the child gets under the same number; all others above 2 are closed
};

/// What became of it. Exactly one of these holds: it exited, a signal ended it, it was too slow, it never started.
struct CommandResult {
  int exit_code = -1;  // -1 unless it exited by itself
  int signal = 0;      // that ended it, 0 if none (not set for our own kill at the time limit)
  std::string out{};   // the first max_output_bytes of it
  std::string err{};
  bool out_cut = false;  // there was more
  bool err_cut = false;
  bool timed_out = false;         // its whole process group was killed at the limit
  std::string could_not_start{};  // why, with the program's name; otherwise empty
  std::chrono::milliseconds took{0};

  bool succeeded() const { return exit_code == 0 && !timed_out && could_not_start.empty(); }
};

/// Runs programs. Implementations may be called from several threads at once.
class CommandRunner {
 public:
  virtual ~CommandRunner() = default;

  /// Returns when the program has ended, or at the time limit at the latest (plus the moment it takes to kill it).
  /// Never throws for anything the program or the system does.
  virtual CommandResult run(const Command& command) = 0;
};

/// The real one. The child leads its own process group, so that a signal to ours does not reach it and at the limit
/// nothing of it is left; if we die, the kernel ends it too unless `outlive_us`. What the child leaves running behind
/// does not delay us: we return once it has ended and its output is read or closed.
class ProcessRunner : public CommandRunner {
 public:
  /// outlive_us: a child that is under way is finished although this process dies (a submission that may as well
  /// succeed).
  /// open_files: their soft limit of open files, which sbatch hands on to jobs; 0: ours.
  explicit ProcessRunner(bool outlive_us = true, std::uint64_t open_files = 0)
      : outlive_us_(outlive_us), open_files_(open_files) {}
  CommandResult run(const Command& command) override;

 private:
  bool outlive_us_;
  std::uint64_t open_files_;
};

}  // namespace slurm
