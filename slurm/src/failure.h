#pragma once

#include <string>

#include "slurm/command.h"

namespace slurm {

/// What a command that did not succeed means.
enum class Failure {
  kRefused,  // Slurm said no
  kNotSent,  // nobody was asked: no controller, no configuration, no munge, no program
  kLost,     // asked, and the answer got lost
};

struct FailureText {
  Failure kind = Failure::kRefused;
  std::string why;  // on one line, without the command's own prefixes
};

/// Told by how the command ended and by what it wrote to stderr.
FailureText explain_failure(const std::string& program, const CommandResult& result);

/// Whether some request was sent whose answer did not come.
bool tells_of_a_lost_answer(const std::string& words);

/// What a command wrote to stderr (or, if nothing, to stdout), as one line of at most 2,000 characters.
std::string complaint(const std::string& program, const CommandResult& result);

}  // namespace slurm
