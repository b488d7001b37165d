#pragma once

#include <chrono>
#include <filesystem>
#include <string>

#include "agent/protocol/fence_file.h"
#include "agent/protocol/task_launch.h"

namespace agent::watch {

/// What must lie on disk before the ranks of an attempt start. musterd makes it when it hands an attempt over alone.
/// For an element of a Slurm array the batch script makes it when the element starts (`muster-task --prepare`), so that
/// a waiting element costs no file.
struct AttemptStart {
  protocol::Fence key;                 // the job and the number of the attempt
  std::filesystem::path folder;        // the attempt's own
  std::filesystem::path log_folder;    // of its ranks
  std::filesystem::path fence_folder;  // the checkpoint folder whose fence is raised; empty: none is
  std::filesystem::path run_path;      // where `run_file` goes
  std::string run_file;                // what muster-worker reads; empty: it reads none
  std::filesystem::path cache_folder;  // of prepared text; empty: none is made
};

/// Of a launch file. The attempt's own variables tell the key and where the run file goes. Where musterd has raised the
/// fence, it is not raised again: a later job may have the folder by now.
AttemptStart start_of(const protocol::TaskLaunch& launch, const std::filesystem::path& attempt_folder);

enum class Fencing {
  kRaised,       // or there is no fence to raise
  kRaisedAgain,  // under the lock of a rank of an older attempt, which did not let go of it
  kOver          // a later attempt has the folder, or another job: this attempt may not start
};

/// Makes the folders, raises the fence and writes the run file. May be repeated. Throws std::system_error.
Fencing make_start(const AttemptStart& start);

/// A checkpoint folder belongs to the attempt that `<folder>/FENCE` names ("job 7 attempt 3\n"). Ranks of an older one,
/// and of another job, find that out before they make a checkpoint valid, under a shared flock on
/// `<folder>/FENCE.lock`.
///
/// Raises it to `key`, never to an older attempt of the same job, under an exclusive flock waited for at most
/// `patience`: an old rank that hangs inside its save must not keep the next attempt from starting. Creates the folder.
/// Returns false if the lock was not to be had. The fence is raised all the same: that rank looks at it again when it
/// has published, and withdraws what it has. Throws std::system_error when the folder takes no writes.
bool raise_fence(const std::filesystem::path& folder, const protocol::Fence& key, std::chrono::milliseconds patience);

}  // namespace agent::watch
