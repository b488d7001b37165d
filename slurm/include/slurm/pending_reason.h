#pragma once

#include <span>
#include <string>
#include <string_view>

namespace slurm {

struct ListedJob;

/// What a reason of squeue or sacct means for a person.
struct ReasonText {
  std::string sentence{};  // why, in one sentence
  std::string action{};    // what to do about it, in one sentence
  bool known = true;       // false: Slurm 22.05 does not know this reason
};

/// Explains a reason as squeue prints it ("Priority", "QOSMaxJobsPerUserLimit", "(Resources)"). Texts that slurmctld
/// writes instead of a reason ("Nodes required for job are DOWN, ...", "ReqNodeNotAvail, UnavailableNodes:node[3-4]",
/// "launch failed requeued held") are understood too, with what they name. Anything else gets a sentence that quotes
/// it. Commands in actions have JOBID, ARRAYID and NUMBER where numbers belong.
ReasonText explain_reason(std::string_view reason);

/// The same of a job that waits, with its own numbers in the commands, and which jobs it depends on.
ReasonText explain_waiting(const ListedJob& job);

/// Every reason that Slurm 22.05 can print, in the order of its own table.
std::span<const std::string_view> known_reasons();

}  // namespace slurm
