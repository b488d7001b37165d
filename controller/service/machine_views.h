#pragma once

#include <string>

#include "controller/core/job.h"
#include "controller/executors/own_machine.h"
#include "muster/v1/job.pb.h"

namespace service {

// What people see of the shares of musterd's own machine.

/// Of an attempt that has not ended.
void fill_share(const core::Attempt& attempt, muster::v1::Attempt& out);
/// The GPUs of one rank by their numbers on the machine: "0,1". One that musterd does not list any more is named as
/// CUDA_VISIBLE_DEVICES does. Empty: none, or the attempt has ended.
std::string gpus_of_rank(const core::Attempt& attempt, core::RankNumber rank, const executors::OwnMachine& machine);
/// What people should know of a local job that sees no GPU, or chooses some by itself, on a machine that has GPUs;
/// empty: nothing.
std::string gpu_note(const muster::v1::JobSpec& spec, const executors::OwnMachine& machine);

}  // namespace service
