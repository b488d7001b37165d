#pragma once

#include <chrono>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "slurm/scheduler.h"

namespace slurm {

/// The parsed output of a command, or the reason why it cannot be parsed.
template <class T>
using Parsed = std::variant<T, std::string>;

/// Parses "5:00", "2:00:00" and "1-12:00:00". Returns nullopt for UNLIMITED, INVALID (more than a year), NONE and the
/// like.
std::optional<std::chrono::seconds> parse_duration(std::string_view text);

/// Parses seconds since 1970. Returns nullopt for "N/A", "Unknown", "None", 0 and times after 2100.
std::optional<Time> parse_time(std::string_view text);

/// The fields that squeue and sacct are asked for, in the order that the parsers expect.
std::string squeue_format(const std::string& separator);
std::string sacct_format();

/// Parses `squeue -h -O squeue_format(separator)`. The separator follows each field, and a line break follows each row.
/// Rows of arrays' remainders and of parts of heterogeneous jobs are left out.
Parsed<std::vector<ListedJob>> parse_squeue(std::string_view text, const std::string& separator);

/// Parses `scontrol -o show job NUMBER`, for Scheduler::find().
Parsed<std::vector<ListedJob>> parse_shown_jobs(std::string_view text);

/// Parses `sacct -n -p -o sacct_format()`, which has the same form.
Parsed<std::vector<PastRun>> parse_sacct(std::string_view text, const std::string& separator);

/// Parses the sentence of `sbatch --test-only`.
std::optional<StartEstimate> parse_start(std::string_view text);

Parsed<std::vector<Partition>> parse_partitions(std::string_view text);
Parsed<std::vector<Node>> parse_nodes(std::string_view text);
Parsed<ClusterConfig> parse_config(std::string_view text);

}  // namespace slurm
