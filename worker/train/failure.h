#pragma once

#include <exception>

#include "worker/train/run.h"

namespace worker {

/// How a rank ends that an exception has ended: the exit code of its kind, and the exception's own text on one line.
/// Memory that lacks, of the host or of a GPU, is spec::kExitOutOfMemory whichever library says so. LibTorch's C++
/// backtrace and CUDA's advice to developers of kernels are left out.
Outcome outcome_of(const std::exception_ptr& failure);

}  // namespace worker
