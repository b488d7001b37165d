#pragma once

#include <filesystem>
#include <functional>

#include "agent/program/agent.h"

namespace agent::program {

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
