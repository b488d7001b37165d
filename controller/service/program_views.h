#pragma once

#include <optional>
#include <string>

#include "controller/core/job.h"
#include "controller/ranks/live_ranks.h"
#include "muster/v1/job.pb.h"

namespace service {

/// What people read of the words of a program: the settings of its run, its checkpoints, its bad lines, and how long a
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
/// Of a rank that has used up half of its limit: "rank 1: no step for 8 s in section step; ..."; empty: there is none.
std::string no_progress_note(const ranks::LeastProgress& least, core::Millis now);

}  // namespace service
