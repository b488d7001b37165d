#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "agent/protocol/launch.h"
#include "controller/core/event.h"
#include "controller/executors/executor.h"

namespace executors::on_slurm {

// musterd's side of the files that musterd and agents share in the attempt's folder; agent/protocol/ has their
// formats.

/// <attempt>/launch.json, mode 0600: it holds the attempt's token. First makes what else must lie on disk before
/// the ranks start, where that is not done yet. Throws std::system_error.
void write_launch_file(const LaunchRequest& request, bool forward_signals);

/// The report that the status file of the rank's agent gives; nullopt: it is not there, or not readable now.
std::optional<TaskReport> read_rank_status(const std::filesystem::path& attempt_folder, core::RankNumber rank);
/// Some rank has started: the attempt did run.
bool any_rank_status(const std::filesystem::path& attempt_folder);

/// Where an element of an array has its log; nullopt: the attempt is no element, or has not begun.
std::optional<agent::protocol::ElementPlace> element_place(const std::filesystem::path& attempt_folder);

using agent::protocol::kSetFile;
/// The files of an array, in its folder: the attempt folders by index, and the launch files of all attempts in one. See
/// agent/protocol/launch.h. Throws std::system_error.
void write_set_files(const std::filesystem::path& set_folder, const std::vector<LaunchRequest>& members,
                     bool forward_signals);
/// The attempts of an array by index; a folder that is no attempt's is {}. Empty: there is no such file, or it is
/// damaged. Throws std::system_error.
std::vector<core::AttemptKey> read_set_file(const std::filesystem::path& path);

/// The line of a Slurm log that says most about why nothing was started. It is the last line that is not srun's summary
/// ("srun: error: node1: task 0: Exited with exit code 2"), else the last line. Control characters are removed, and the
/// line is cut to kLongestQuote bytes. Empty: the log says nothing.
std::string telling_line(std::string_view log);
inline constexpr std::size_t kLongestQuote = 300;

/// A run of the script writes this if its attempt has begun already: see claim_line() in launcher.cpp.
inline constexpr const char* kBegunAlready = "muster: this attempt has begun already, and Slurm does not know it";
/// The newest run of the attempt with this Slurm log has written kBegunAlready.
bool was_begun_already(const std::filesystem::path& log);

/// The log has slurmstepd's word that Slurm took the nodes for another job: "... error: *** JOB 12 ON node1 CANCELLED
/// AT <time> DUE TO PREEMPTION ***", or STEP 12.0 in place of the job.
bool names_preemption(std::string_view log);
/// True if the log in a file names a preemption. A log that is missing or can't be read names none.
bool was_preempted(const std::filesystem::path& log);

/// "; its Slurm log ends with: ..."; empty if there is nothing to quote.
std::string quote_of_log(const std::filesystem::path& log);

/// The nodes whose check failed, by the job's log, each once, as facts about the attempt.
std::vector<core::EventBody> unfit_nodes(std::string_view log, core::AttemptNumber attempt);
/// Reads the nodes from a file as unfit_nodes() does. A log that is missing or can't be read names no node.
std::vector<core::EventBody> unfit_nodes_of(const std::filesystem::path& log, core::AttemptNumber attempt);

}  // namespace executors::on_slurm
