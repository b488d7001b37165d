#pragma once

#include "muster/v1/job.pb.h"

namespace cli {

/// Prints the entries of `muster show` about a job's program: what it runs, where, its job file and its environment.
/// For a recipe, only the entries that commands have too.
void print_program(const muster::v1::JobSpec& spec);

/// An argument, quoted for a shell.
std::string shell_word(const std::string& text);

}  // namespace cli
