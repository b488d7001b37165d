#pragma once

#include <sys/types.h>

#include "agent/process/gang.h"

namespace agent::task {

/// The program of the one rank that a task stands beside: a gang of one.
class RankProcess {
 public:
  /// `plan` has one rank. Throws LaunchError, in words for people, if the program cannot be executed; nothing runs
  /// then.
  explicit RankProcess(const process::GangPlan& plan);

  pid_t pid() const { return static_cast<pid_t>(gang_.ranks().front().pid); }
  /// To the whole process group.
  void signal(int number) const;
  /// True while a SIGSTOP or the like holds the program.
  bool stopped() const;

 private:
  process::Gang gang_;
};

}  // namespace agent::task
