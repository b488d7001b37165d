#pragma once

#include <memory>

#include "controller/executors/executor.h"

namespace executors {

/// Local processes and Slurm behind one executor: each attempt goes where its job file says, "auto" to Slurm, and later
/// calls about it go to the same one. Thread-safe as the two are, which must outlive it. Of attempts that were launched
/// or adopted it remembers the executor. Beyond `remembered` of them, those that are over are forgotten.
std::unique_ptr<Executor> make_routing_executor(Executor& local, Executor& slurm, std::size_t remembered = 100'000);

}  // namespace executors
