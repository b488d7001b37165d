#pragma once

#include <string>

#include "base/command.h"

namespace slurm {

/// What the failure of a command means.
enum class Failure {
  kRefused,  // Slurm said no
  kNotSent,  // no request was sent: no controller, no configuration, no munge, no program
  kLost,     // a request was sent, and its answer was lost
};

struct FailureText {
  Failure kind = Failure::kRefused;
  std::string why;  // on one line, without the command's own prefixes
};

/// Classifies a failure by how the command ended and by what it wrote to stderr.
FailureText explain_failure(const std::string& program, const base::CommandResult& result);

/// Whether the words say that a request was sent and its answer did not come.
bool tells_of_a_lost_answer(const std::string& words);

/// What a command wrote to stderr, or to stdout if stderr is empty, as one line of at most 2,000 characters.
std::string complaint(const std::string& program, const base::CommandResult& result);

}  // namespace slurm
