#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "agent/beside/sidecar.h"
#include "agent/process/orphans.h"

namespace agent::supervisor {

struct SupervisorOptions {
  std::filesystem::path folder;
  /// true: protocol::kLockFd and kReportFd are there. false: started by hand; takes the lock itself.
  bool started_by_executor = false;
  beside::ConnectRank connect;
  /// Ends what ranks have left behind; see agent/process/orphans.h.
  std::function<std::string(std::chrono::milliseconds)> end_children = [](auto patience) {
    return process::end_children(patience);
  };
  /// For tests of crashes: called at "forked", "recorded", "running" and "exited".
  std::function<void(std::string_view)> on_step;
};

/// One attempt's life beside its ranks, independent of the controller. The supervisor
/// - goes to the background, and starts what launch.json says unless status.jsonl shows that it was started before;
/// - writes down each fact (see agent/protocol/supervisor_words.h) in a second thread, and tells it on supervisor.sock
/// without
///   waiting for the disk;
/// - tells the controller what the ranks report (see agent/watch/report.h), and on supervisor.sock what they use,
/// - kills what a rank leaves behind, and returns when no process of the attempt is left.
///
/// A connection is told every fact from the first one on. It may send stop commands (see
/// agent/protocol/supervisor_words.h). The reason of a stop is written where the ranks' programs find it (see
/// agent/watch/agent_files.h).
///
/// The calling process must have one thread. If it dies, the kernel kills the ranks. It does not react to SIGTERM,
/// SIGINT and SIGHUP: at a machine's shutdown ranks get their own SIGTERM, and a second one would spoil their saving.
/// Returns the process's exit status.
int supervise(const SupervisorOptions& options);

}  // namespace agent::supervisor
