#pragma once

#include <string>

#include "muster/v1/job.pb.h"

namespace jobfile {

/// A spec as a job file: TOML in the keys and units of job_keys(), from which parse_job_file() makes the same spec.
/// Keys that have their default are left out. What is no key of a job file (a job's place in its sweep) is left out
/// too.
std::string job_file_text(const muster::v1::JobSpec& spec);

/// A text in TOML's quotes.
std::string toml_text(const std::string& text);

}  // namespace jobfile
