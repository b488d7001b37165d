#pragma once

#include <string>
#include <string_view>

namespace slurm {

struct ListedJob;

/// The text in small letters and with spaces. scontrol prints underscores where squeue prints spaces.
std::string plain_words(std::string text);

/// The reasons of a job that say more than its state.
enum class Reason {
  kOther,
  kTimeLimit,      // Slurm ends the run, or has ended it, at its time limit
  kNodeDown,       // a node of the run failed
  kLaunchFailure,  // Slurm could not start the run on its nodes, has put the job back and holds it
};
/// Classifies a reason as squeue or scontrol prints it.
Reason understand_reason(std::string_view reason);

/// The meaning of a reason of squeue or sacct, in words for a person.
struct ReasonText {
  std::string sentence{};  // the reason, in one sentence
  std::string action{};    // the remedy, in one sentence
  bool known = true;       // false: the sentence only quotes the reason
};

/// Explains a reason as squeue prints it ("Priority", "QOSMaxJobsPerUserLimit", "(Resources)"). Also explains the texts
/// that slurmctld writes instead of a reason, such as "Nodes required for job are DOWN, ...", "ReqNodeNotAvail,
/// UnavailableNodes:node[3-4]" and "launch failed requeued held". Any other text is quoted in the sentence. Commands in
/// actions contain the placeholders JOBID, ARRAYID and NUMBER.
ReasonText explain_reason(std::string_view reason);

/// Explains the reason of a waiting job. Fills the job's ids into the commands, and names the jobs that it depends on.
ReasonText explain_waiting(const ListedJob& job);

}  // namespace slurm
