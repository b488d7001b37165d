#pragma once

#include "muster/v1/job.pb.h"

namespace cli {

/// What a job runs, where, from which job file and in which environment: entries of `muster show`. Of a recipe, what it
/// shares with commands.
void print_program(const muster::v1::JobSpec& spec);

/// An argument as a shell takes it.
std::string shell_word(const std::string& text);

}  // namespace cli
