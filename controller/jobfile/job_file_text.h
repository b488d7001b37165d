#pragma once

#include <string>

#include "muster/v1/job.pb.h"

namespace jobfile {

/// Writes a spec as a job file: TOML with the keys and units of job_keys(). parse_job_file() makes the same spec from
/// it. Keys with their default are left out, and so are parts of a spec that no key sets (a job's index in its sweep).
std::string job_file_text(const muster::v1::JobSpec& spec);

/// The text as a TOML string, with quotes.
std::string toml_text(const std::string& text);

}  // namespace jobfile
