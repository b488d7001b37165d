#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>

#include "os/fd.h"

namespace executors::local {

/// What became of starting a supervisor.
struct StartAnswer {
  enum class Kind {
    kRunning,  // every rank's program was executed
    kFailed,   // it said why it could not
    kSilent,   // it ended, or was killed at the deadline, without a word; status.jsonl shows how far it came
  };
  Kind kind = Kind::kSilent;
  std::string reason;
  bool retryable = true;
  int no_room = 0;  // the error, if it found no room for its files or no descriptors, and started nothing
};

/// Starts `program` on an attempt's folder, in a session of its own, with the attempt's lock and none of this process's
/// other descriptors, and waits for its word until the deadline, when it is killed. `spawned` is called when it has
/// been started.
StartAnswer start_supervisor(const std::filesystem::path& program, const std::filesystem::path& folder, os::Fd lock,
                             std::chrono::steady_clock::time_point deadline, const std::function<void()>& spawned);

}  // namespace executors::local
