#pragma once

#include <span>
#include <string>
#include <string_view>

namespace slurm {

struct ListedJob;

/// What a reason of squeue or sacct means, in words for a person.
struct ReasonText {
  std::string sentence{};  // the reason, in one sentence
  std::string action{};    // the remedy, in one sentence
  bool known = true;       // false: Slurm 22.05 does not know this reason
};

/// Explains a reason as squeue prints it ("Priority", "QOSMaxJobsPerUserLimit", "(Resources)"). Also explains the texts
/// that slurmctld writes instead of a reason, such as "Nodes required for job are DOWN, ...", "ReqNodeNotAvail,
/// UnavailableNodes:node[3-4]" and "launch failed requeued held". Any other text is quoted in the sentence. Commands in
/// actions contain the placeholders JOBID, ARRAYID and NUMBER.
ReasonText explain_reason(std::string_view reason);

/// Explains the reason of a waiting job. Fills the job's ids into the commands, and names the jobs that it depends on.
ReasonText explain_waiting(const ListedJob& job);

/// Every reason that Slurm 22.05 can print, in the order of its own table.
std::span<const std::string_view> known_reasons();

}  // namespace slurm
