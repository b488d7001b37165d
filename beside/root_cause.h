#pragma once

#include <optional>
#include <string>

#include "beside/log_lines.h"

namespace beside {

/// What torchelastic (torchrun, accelerate launch) says of the worker that failed first.
struct RootCause {
  int rank = log::kNoRank;
  int local_rank = log::kNoRank;
  bool was_killed = false;  // by SIGKILL, which leaves no words
  std::string error;        // of the worker's error file; empty: the worker wrote none
  std::string end;          // "rank 1 of the launcher was killed by SIGKILL", "... exited with 1"
};

/// The last block "Root Cause (first observed failure)" of the lines; nullopt: there is none.
std::optional<RootCause> root_cause(const log::Lines& lines);

}  // namespace beside
