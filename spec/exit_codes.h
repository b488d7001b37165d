#pragma once

namespace spec {

/// How a process ended: by exit code, or by signal when `signal` is not 0.
struct ExitStatus {
  int code = 0;
  int signal = 0;
  bool operator==(const ExitStatus&) const = default;
};

/// How muster-worker ends. The controller's requeue policy reads these codes, whatever program ended with them.
enum ExitCode : int {
  kExitDone = 0,
  kExitFailed = 1,         ///< anything not listed here
  kExitNeverRequeue = 93,  ///< the run file or the data is wrong: trying again cannot help
  kExitFenced = 94,        ///< a newer attempt owns the job; nothing more was written
  kExitOutOfMemory = 97,
  kExitRequeue = 99,  ///< saved and left as asked, or told a second time: start me again
};

/// An agent could not execute the program. Shells use this code for the same.
inline constexpr int kExitCannotStart = 127;

}  // namespace spec
