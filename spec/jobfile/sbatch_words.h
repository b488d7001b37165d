#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "spec/jobfile/job_keys.h"

namespace jobfile {

// The words that people carry over from scripts for sbatch: its names for keys, and its spellings of values.

/// The value of a key that is written in sbatch's form, where this form has one meaning; else nullopt.
std::optional<Value> sbatch_value(const Key& field, std::string_view text);
/// How to write a value that sbatch would take, in our form: "; sbatch reads minutes: write \"3d\"". Empty: it is none.
std::string sbatch_remedy(const Key& field, std::string_view text);

/// The key that [slurm] of a job file means by a name of sbatch's: "resources.time_limit" for "slurm.time". Empty:
/// none.
std::string_view key_of_sbatch(std::string_view path);
/// The requests of the job to Slurm by [slurm], and by the counts of [resources]: options of sbatch by their long
/// names; without a value: a bare flag. Those of slurm.options come last.
std::map<std::string, std::optional<std::string>> sbatch_options(const muster::v1::JobSpec& spec);
/// The value of slurm.time and of --time as a duration's text, since all of sbatch's forms are meant there; `text` if
/// it is no such time.
std::string as_duration(std::string_view text);

}  // namespace jobfile
