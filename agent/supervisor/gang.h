#pragma once

#include <optional>
#include <stdexcept>
#include <string>
#include <vector>

#include "os/fd.h"
#include "agent/supervisor/launch_file.h"
#include "agent/supervisor/status_log.h"

namespace runtime::local {

/// Why ranks could not be started.
struct LaunchError : std::runtime_error {
  LaunchError(const std::string& reason, bool is_retryable, int error_number = 0)
      : std::runtime_error(reason), retryable(is_retryable), error(error_number) {}
  bool retryable;
  int error;  // of the system; 0: none
};

/// True for errors that may be gone the next time: no memory, no processes, no disk space, too many open files.
bool may_pass(int error);

/// The processes of an attempt's ranks, children of the calling process, which must have one thread alone.
///
///   constructed: every rank is a process in a group of its own, set up, waiting at the gate --open_gate--> executed
///
/// Ranks still at the gate when the object (or this process) goes leave without having run anything; ranks beyond it
/// are killed by the kernel when this process dies.
class Gang {
 public:
  /// Ranks append stdout and stderr to <log folder>/rank-<n>.log and read nothing. Throws LaunchError; then no process
  /// is left.
  explicit Gang(const LaunchFile& launch);
  ~Gang();
  Gang(const Gang&) = delete;
  Gang& operator=(const Gang&) = delete;

  const std::vector<RankProcess>& ranks() const { return ranks_; }

  /// Lets every rank execute its program. Returns when all have, or the reason why one could not; the others run then.
  std::optional<LaunchError> open_gate();

  /// Sends a signal to a rank's process group. The rank must not have been reaped.
  void signal(core::RankNumber rank, int number) const;

 private:
  struct Pipe {
    Fd read, write;
  };
  static Pipe make_pipe();
  void fork_rank(core::RankNumber rank, const std::string& log_path);
  [[noreturn]] void be_rank(core::RankNumber rank, int log) const;
  void abandon();

  LaunchFile launch_;
  Fd working_folder_, null_;
  Pipe gate_;      // a byte each rank lets it go
  Pipe failures_;  // closed by executing; otherwise an errno
  std::vector<std::vector<std::string>> environments_;
  std::vector<RankProcess> ranks_;
};

}  // namespace runtime::local
