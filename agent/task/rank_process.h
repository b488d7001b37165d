#pragma once

#include <sys/types.h>

#include <optional>

#include "agent/process/gang.h"
#include "agent/protocol/launch.h"
#include "agent/rank/environment.h"
#include "spec/variables.h"

namespace agent::task {

/// The value of a variable as the rank sees it: the job's own stands above the task's.
std::optional<std::string> variable_of(const spec::Environment& inherited, const protocol::TaskLaunch& launch,
                                       const char* name);

/// A rank's whole environment; see [Note: a rank's environment] in spec/variables.h. `inherited` is the
/// task's own, which Slurm has made. `meeting_point` is where rank 0 listens, for a program that is to be told.
spec::Environment rank_environment(const spec::Environment& inherited, const protocol::TaskLaunch& launch,
                                   const rank::RankEnvironment& place,
                                   const std::optional<rank::Endpoint>& meeting_point);

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
