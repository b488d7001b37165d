#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string_view>

#include "controller/executors/executor.h"

namespace executors::local {

struct LocalOptions {
  /// The data folder, absolute; attempts live in <root>/jobs/<job>/attempt-<n>.
  std::filesystem::path root;
  /// muster-agent, absolute.
  std::filesystem::path agent_program;
  /// For tests of crashes: launch() calls it at "written" (launch.json), "spawned" and "answered".
  std::function<void(std::string_view)> on_step = {};
  /// How often it is looked whether an agent still does its work; two such rounds after a stop's grace, one that does
  /// not is killed, and its ranks with it.
  std::chrono::milliseconds look_every{5000};
  /// The soft limit of open files that ranks get; 0: as their agent has it.
  std::uint64_t open_files = 0;
  /// How long launch() waits for its agent to start the ranks, at the most.
  std::chrono::milliseconds launch_limit{30'000};
  /// Where GPUs show.
  std::filesystem::path devices = "/dev";
  /// The resources that attempts share, until learn() tells more.
  OwnMachine machine = {};
};

/// Ranks as processes of this machine. Each attempt has an agent of its own that outlives the controller, records every
/// fact on disk, and tells it to the controller (see agent/program/agent.h), which hands it on by task(). A stop and a
/// request for stacks reach the agent with the controller's answers.
///
/// launch() and vouch() may be called by several threads at once; launch() takes up to launch_limit. Facts come from
/// one thread of the executor's own. A rank that ends at once may be told before the caller of launch() has looked at
/// its answer.
std::unique_ptr<Executor> make_local_executor(LocalOptions options);

}  // namespace executors::local
