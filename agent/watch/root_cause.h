#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/watch/log_lines.h"

namespace agent::watch {

/// Facts that torchelastic (torchrun, accelerate launch) tells of one worker that failed.
struct WorkerFailure {
  int rank = log::kNoRank;
  int local_rank = log::kNoRank;
  std::string time;         // "2026-11-28_07:00:10": of the error, to a second
  bool was_killed = false;  // by SIGKILL, which leaves no words
  bool had_signal = false;  // a signal ended it, but not SIGTERM, with which torchelastic ends the other workers
  std::string error;        // of the worker's error file; empty: the worker wrote none
  std::string error_file;   // empty: none
  std::string end;          // "rank 1 of the launcher was killed by SIGKILL", "... exited with 1"
};

/// The worker that failed first.
struct RootCause : WorkerFailure {
  std::vector<WorkerFailure> others;  // the other workers that failed, the earliest first
};

/// The last block "Root Cause (first observed failure)" of the lines; nullopt: there is none.
std::optional<RootCause> root_cause(const log::Lines& lines);

/// How RootCause::end tells that a worker exited, which says nothing of why.
inline constexpr std::string_view kWorkerExited = " of the launcher exited with ";

}  // namespace agent::watch
