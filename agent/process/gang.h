#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "agent/protocol/facts.h"
#include "base/fd.h"

namespace agent::process {

/// Why ranks could not be started.
struct LaunchError : std::runtime_error {
  LaunchError(const std::string& reason, bool is_retryable, int error_number = 0)
      : std::runtime_error(reason), retryable(is_retryable), error(error_number) {}
  bool retryable;
  int error;  // of the system; 0: none
};

/// True for errors that may be gone the next time: no memory, no processes, no disk space, too many open files.
bool may_pass(int error);

/// One program, to be executed once for each rank.
struct GangPlan {
  struct Rank {
    std::uint32_t number = 0;
    std::map<std::string, std::string> environment;  // whole
    std::string log;                                 // both outputs are appended; stdin is empty
  };
  std::string program;
  /// True if the program is started as a shell would start it: a name without a slash is looked for in this process's
  /// PATH, and a script without a first line for the kernel is run by /bin/sh.
  bool as_a_shell_would = false;
  std::vector<std::string> argv;
  std::string working_folder;
  std::uint64_t open_files = 0;  // the soft limit that ranks get; 0: this process's
  std::vector<Rank> ranks;
};

/// The processes of ranks, children of the calling process.
///
///   constructed: every rank is a process in a group of its own, set up, waiting at the gate --open_gate--> executed
///
/// Ranks still at the gate when the object (or this process) goes leave without having run anything. The kernel kills
/// ranks beyond the gate when the thread dies that has constructed the gang.
class Gang {
 public:
  /// Throws LaunchError; then no process is left.
  explicit Gang(const GangPlan& plan);
  ~Gang();
  Gang(const Gang&) = delete;
  Gang& operator=(const Gang&) = delete;

  /// In the order of the plan.
  const std::vector<protocol::RankProcess>& ranks() const { return ranks_; }

  /// Lets every rank execute its program. Returns when all have, or the reason why one could not; the others run then.
  std::optional<LaunchError> open_gate();

  /// Sends a signal to the process group of the rank at this index. The rank must not have been reaped.
  void signal(std::size_t index, int number) const;

 private:
  struct Pipe {
    base::Fd read, write;
  };
  struct Execution;  // all that a child needs after the fork, made before it
  static Pipe make_pipe();
  void fork_rank(const GangPlan::Rank& rank);
  [[noreturn]] void be_rank(const Execution& execution) const;
  void abandon();
  std::string explain_exec(int error) const;

  const std::string program_;
  const bool as_a_shell_would_;
  std::vector<std::string> argv_;
  const std::uint64_t open_files_;
  base::Fd working_folder_, null_;
  Pipe gate_;      // a byte each rank lets it go
  Pipe failures_;  // closed by executing; otherwise an errno
  std::vector<protocol::RankProcess> ranks_;
};

}  // namespace agent::process
