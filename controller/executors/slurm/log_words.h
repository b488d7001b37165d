#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace runtime::on_slurm {

/// The line of a Slurm log that says most about why nothing was started: the last one that is not srun's own summary
/// ("srun: error: node1: task 0: Exited with exit code 2"), else the last. Without control characters, and cut to
/// kLongestQuote bytes. Empty: it says nothing.
std::string telling_line(std::string_view log);
inline constexpr std::size_t kLongestQuote = 300;

/// What a run of the script writes that finds its attempt begun: see claim_line() in script_plan.cpp.
inline constexpr const char* kBegunAlready = "muster: this attempt has begun already, and Slurm does not know it";
/// The newest run of the attempt in this folder has written so.
bool was_begun_already(const std::filesystem::path& attempt_folder);

/// "; its Slurm log ends with: ..." of the attempt in this folder; empty if there is nothing to quote.
std::string quote_of_log(const std::filesystem::path& attempt_folder);

}  // namespace runtime::on_slurm
