#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "slurm/batch_script.h"
#include "slurm/scheduler.h"

namespace in_slurm {

/// [Note: musterd inside Slurm jobs]
/// `muster up --in-slurm` writes a batch script into the data folder, and submits it. musterd runs in that job, on
/// whatever node, until shortly before the job's time limit. It keeps one more job of the same script queued, its
/// successor (Succession). Whatever ends the job, the successor goes on with the jobs of people.
/// - One at a time: the jobs have one name and --dependency=singleton, so Slurm starts a successor only after the job
///   before has ended for Slurm. A node that Slurm has lost may still run musterd. Then the lock of the data folder
///   keeps the successor waiting. Not every file system passes locks on to other hosts. So each musterd claims the
///   folder before it opens the store (claim()), the older one leaves when it sees the claim, and where that matters
///   the successor waits for longer than the older one needs to see it.
/// - One successor: only the musterd of the job that runs submits, and it looks at Slurm's list first. Two that were
///   queued all the same become one.
/// - The end: `muster down` removes the script first. Without the script nothing is submitted, and no musterd begins.
///   Then it cancels the jobs.
/// - --no-requeue: a lost node ends the job, and the successor needs not wait for the requeued one.

/// The batch script, from `muster up --in-slurm` until `muster down`.
std::filesystem::path script_file(const std::filesystem::path& data_folder);

/// The comment of all these jobs, by which they are found in Slurm's list: it names the folder.
std::string comment_of(const std::filesystem::path& data_folder);

/// The batch script. `command`: musterd with its arguments. `log`: for what the script itself says. `asked`: options of
/// sbatch by their long names, which override those that are chosen here. Pure but for the links in the folder's path.
/// `limit`: the time limit that the job will have; nullopt: not known.
slurm::BatchScript script_of(const std::filesystem::path& data_folder, const std::vector<std::string>& command,
                             const std::filesystem::path& log, const slurm::Options& asked,
                             std::optional<std::chrono::seconds> limit);

/// The time limit to ask for where the person names none; nullopt: the partition has a default of its own. A job
/// without a limit would be asked for the longest one, and start late.
std::optional<std::chrono::minutes> time_to_ask(const std::vector<slurm::Partition>& partitions,
                                                const slurm::Options& asked);

/// The variables of this process that musterd needs in a job: who the person is, and where programs are.
std::map<std::string, std::string> environment_of_job();

/// The jobs of one data folder's musterd, as Slurm lists them.
struct Standing {
  std::optional<slurm::ListedJob> running;  // with nodes, or still cleaning up
  std::vector<slurm::ListedJob> queued;     // the lowest number first
  std::optional<slurm::ListedJob> ended;    // the newest of those that Slurm still knows

  bool is_any_left() const { return running || !queued.empty(); }
};

/// The jobs with this comment. Pure.
Standing standing_of(const std::vector<slurm::ListedJob>& jobs, const std::string& comment);

}  // namespace in_slurm
