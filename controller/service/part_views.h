#pragma once

#include <string>

#include "controller/core/job.h"
#include "controller/executors/executor.h"
#include "controller/ranks/live_ranks.h"
#include "muster/v1/job.pb.h"

namespace service {

// Views of the shares of musterd's own machine, for people.

/// Fills in the share of an attempt that has not ended.
void fill_share(const core::Attempt& attempt, muster::v1::Attempt& out);
/// The GPUs of one rank by their numbers on the machine: "0,1". One that musterd does not list any more is named as
/// CUDA_VISIBLE_DEVICES does. Empty: none, or the attempt has ended.
std::string gpus_of_rank(const core::Attempt& attempt, core::RankNumber rank, const executors::OwnMachine& machine);
/// The note for people on a local job that sees no GPU, or chooses some by itself, on a machine that has GPUs; empty:
/// nothing.
std::string gpu_note(const muster::v1::JobSpec& spec, const executors::OwnMachine& machine);

/// Views of the words of a program, for people: the settings of its run, its checkpoints, its bad lines, and how long a
/// rank may go without progress.

/// Settings by name, nested ones as "optimizer.lr", each value as JSON and texts as they are. Secrets are masked.
/// Empty: `config` is no JSON object.
google::protobuf::Map<std::string, std::string> settings_of(const std::string& config);

/// Newest first.
void fill_checkpoints(const core::ProgramFacts& program, muster::v1::Job& out);

/// "its report files have 3 lines that ..."; empty: all lines could be read.
std::string bad_lines_note(std::uint64_t lines, const std::string& first);

/// "12 s in section step, learned from 200 steps".
std::string hang_limit_text(const ranks::LeastProgress& least);
/// The note on a rank that has used up half of its limit: "rank 1: no step for 8 s in section step; ..."; empty: none.
std::string no_progress_note(const ranks::LeastProgress& least, core::Millis now);

}  // namespace service
