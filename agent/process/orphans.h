#pragma once

#include <chrono>
#include <cstdint>
#include <string>

namespace agent {

/// SIGKILL for all children of this process, and for theirs, until none is left. An agent is the subreaper of its
/// ranks: what a rank has started, in whatever session, is a child of the agent once its own parent has ended. False:
/// some were still there after `patience`, such as one that waits for a disk.
bool end_children(std::chrono::milliseconds patience);

/// An attempt of a job, as its processes have it in their environment.
struct AttemptMark {
  std::string folder;  // MUSTER_ATTEMPT_FOLDER
  std::int64_t number = 0;
};

/// SIGKILL for processes on this machine that an earlier attempt of the same job has left behind, until none is left.
/// False: some were still there after `patience`.
bool end_earlier_attempts(const AttemptMark& mark, std::chrono::milliseconds patience);

}  // namespace agent
