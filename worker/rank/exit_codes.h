#pragma once

namespace worker {

/// How muster-worker ends; the controller's requeue policy reads these.
enum ExitCode : int {
  kExitDone = 0,
  kExitFailed = 1,         ///< anything not listed here
  kExitNeverRequeue = 93,  ///< the run file or the data is wrong: trying again can't help
  kExitOutOfMemory = 97,
  kExitFenced = 94,   ///< a newer attempt owns the job; nothing more was written
  kExitRequeue = 99,  ///< saved and left as asked, or told a second time: start me again
};

}  // namespace worker
