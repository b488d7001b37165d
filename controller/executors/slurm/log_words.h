#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace executors::on_slurm {

/// The line of a Slurm log that says most about why nothing was started. It is the last line that is not srun's summary
/// ("srun: error: node1: task 0: Exited with exit code 2"), else the last line. Control characters are removed, and the
/// line is cut to kLongestQuote bytes. Empty: the log says nothing.
std::string telling_line(std::string_view log);
inline constexpr std::size_t kLongestQuote = 300;

/// A run of the script writes this if its attempt has begun already: see claim_line() in script_plan.cpp.
inline constexpr const char* kBegunAlready = "muster: this attempt has begun already, and Slurm does not know it";
/// The newest run of the attempt in this folder has written kBegunAlready.
bool was_begun_already(const std::filesystem::path& attempt_folder);

/// "; its Slurm log ends with: ..." for the attempt in this folder; empty if there is nothing to quote.
std::string quote_of_log(const std::filesystem::path& attempt_folder);

}  // namespace executors::on_slurm
