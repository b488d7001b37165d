#include "slurm/refusal.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace slurm {
namespace {

// Texts of slurmctld: the cluster does not have what the job asks for. Texts of sbatch: it cannot read an option.
// " specification" occurs in "Invalid qos specification", "Node count specification invalid" and twenty others.
constexpr std::array<std::string_view, 22> kUsers = {
    " specification",
    "Invalid partition name specified",
    "No partition specified or system default partition",
    "User's group not permitted to use this partition",
    "Requested nodes not in this partition",
    "Invalid node name specified",
    "Invalid account or account/partition combination specified",
    "Requested node configuration is not available",
    "More processors requested than permitted",
    "Requested more tasks than available processors",
    "Memory required by task is not available",
    "Requested time limit is invalid",
    "Access denied to requested reservation",
    "Requested reservation is invalid",
    "Requested GRES option unsupported",
    "Pathname of a file, directory or other parameter too long",
    "Job --batch option is invalid",
    "Failed to validate job spec",
    "Invalid directive found in batch script",
    "unrecognized option",
    "Invalid --",
    "Invalid numeric value",
};

constexpr std::array<std::string_view, 8> kForNow = {
    "temporarily",
    "Maximum job count",
    "try again",
    "in standby mode",
    "(inactive or drain)",
    "Requested partition configuration not available now",
    "Requested reservation not usable now",
    "Requested operation is presently disabled",
};

constexpr std::string_view kArray = "Invalid job array specification";
constexpr std::string_view kForbidden = "permission denied";
constexpr std::string_view kPolicy = "Job violates accounting/QOS policy";

bool says(const std::string& words, std::string_view part) {
  return words.find(part) != std::string::npos;
}

template <std::size_t N>
bool says_any(const std::string& words, const std::array<std::string_view, N>& parts) {
  return std::ranges::any_of(parts, [&](auto part) { return says(words, part); });
}

/// Slurm's accounting uses one sentence for all its limits: on a job's size, on its time, on the number of jobs. An
/// earlier line may name the limit: QOSMaxSubmitJobPerUserLimit, AssocGrpSubmitJobsLimit,
/// QOSMaxWallDurationPerJobLimit.
Refusal of_policy(const std::string& words) {
  const auto limit = words.substr(0, words.find(kPolicy));
  const bool too_many = says(limit, "SubmitJob") || (!says(limit, "QOS") && !says(limit, "Assoc"));
  return too_many ? Refusal::kTooMany : Refusal::kUsers;
}

}  // namespace

bool is_final(Refusal kind) {
  return kind == Refusal::kUsers || kind == Refusal::kArray;
}

Refusal understand_refusal(const std::string& words) {
  if (says(words, kPolicy)) return of_policy(words);
  if (says(words, "MaxSubmit")) return Refusal::kTooMany;
  if (says_any(words, kForNow)) return Refusal::kForNow;
  if (says(words, kArray)) return Refusal::kArray;
  return says_any(words, kUsers) ? Refusal::kUsers : Refusal::kUnknown;
}

Refusal understand_refused_change(const std::string& words) {
  return says(words, kForbidden) ? Refusal::kForbidden : Refusal::kUnknown;
}

}  // namespace slurm
