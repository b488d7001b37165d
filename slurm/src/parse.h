#pragma once

#include <chrono>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "slurm/scheduler.h"

namespace slurm {

/// What a command printed, read, or why it can't be.
template <class T>
using Parsed = std::variant<T, std::string>;

/// "5:00", "2:00:00", "1-12:00:00"; nothing for UNLIMITED, INVALID (more than a year), NONE and the like.
std::optional<std::chrono::seconds> parse_duration(std::string_view text);

/// Seconds since 1970; nothing for "N/A", "Unknown", "None", 0 and times after 2100.
std::optional<Time> parse_time(std::string_view text);

/// The fields to ask squeue and sacct for, in the order that the parsers expect.
std::string squeue_format(const std::string& separator);
std::string sacct_format();

/// squeue -h -O squeue_format(separator): each field is followed by the separator, each row by a line break. Rows of
/// arrays' remainders and of heterogeneous jobs' parts are left out.
Parsed<std::vector<ListedJob>> parse_squeue(std::string_view text, const std::string& separator);

/// scontrol -o show job NUMBER: what Scheduler::find() tells.
Parsed<std::vector<ListedJob>> parse_shown_jobs(std::string_view text);

/// sacct -n -p -o sacct_format(): the same form.
Parsed<std::vector<PastRun>> parse_sacct(std::string_view text, const std::string& separator);

/// sbatch --test-only's sentence.
std::optional<StartEstimate> parse_start(std::string_view text);

/// One line of scontrol -o: "Key=value Key=value"; what follows `last_key` is one value to the end of the line.
std::map<std::string, std::string> parse_pairs(std::string_view line, std::string_view last_key = "Reason");

Parsed<std::vector<Partition>> parse_partitions(std::string_view text);
Parsed<std::vector<Node>> parse_nodes(std::string_view text);
Parsed<ClusterConfig> parse_config(std::string_view text);

}  // namespace slurm
