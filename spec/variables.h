#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

// Names of the environment variables that musterd, or an agent for it, sets for ranks.
namespace spec::variable {

/// Every name below begins so, except those that other programs have chosen. muster-agent takes none of its own
/// environment's with this prefix into a rank's.
inline constexpr std::string_view kPrefix = "MUSTER_";

// Set by musterd for the attempt.
inline constexpr const char* kController = "MUSTER_CONTROLLER";  // host:port at the time of the launch
/// The file that tells where musterd is now, see agent/protocol/controller_place.h.
inline constexpr const char* kControllerFile = "MUSTER_CONTROLLER_FILE";
inline constexpr const char* kRankToken = "MUSTER_RANK_TOKEN";  // a secret
inline constexpr const char* kJobId = "MUSTER_JOB_ID";
inline constexpr const char* kAttempt = "MUSTER_ATTEMPT";  // from 1
inline constexpr const char* kAttemptFolder = "MUSTER_ATTEMPT_FOLDER";
inline constexpr const char* kCheckpointFolder = "MUSTER_CHECKPOINT_FOLDER";
inline constexpr const char* kRunFile = "MUSTER_RUN_FILE";  // of a recipe's job
/// Where a rank without a controller writes its metrics.
inline constexpr const char* kMetricsFile = "MUSTER_METRICS_FILE";

// Set by the agent for each rank.
inline constexpr const char* kLocalRank = "MUSTER_LOCAL_RANK";  // among the processes that muster starts on the node
inline constexpr const char* kNodes = "MUSTER_NODES";
inline constexpr const char* kNodeList = "MUSTER_NODELIST";
/// "1" in a script for sbatch (launcher = "batch"): of all processes below it, rank 0 alone reports.
inline constexpr const char* kBatch = "MUSTER_BATCH";
/// The Slurm job of the attempt. A process with another SLURM_JOB_ID belongs to a job that the rank has submitted.
inline constexpr const char* kSlurmJob = "MUSTER_SLURM_JOB";
inline constexpr const char* kStop = "MUSTER_STOP";      // the stop file, see agent/watch/agent_files.h
inline constexpr const char* kReport = "MUSTER_REPORT";  // the report file, see agent/watch/report.h
inline constexpr const char* kErrorFile = "TORCHELASTIC_ERROR_FILE";
inline constexpr const char* kMasterAddress = "MASTER_ADDR";
inline constexpr const char* kMasterPort = "MASTER_PORT";
// The variables that torchrun takes for --master-addr and the others, if its command line has none.
inline constexpr const char* kTorchrunAddress = "PET_MASTER_ADDR";
inline constexpr const char* kTorchrunPort = "PET_MASTER_PORT";
inline constexpr const char* kTorchrunNodes = "PET_NNODES";
inline constexpr const char* kTorchrunNodeRank = "PET_NODE_RANK";
inline constexpr const char* kVisibleDevices = "CUDA_VISIBLE_DEVICES";
/// On musterd's own machine: what the whole attempt was given, as CUDA_VISIBLE_DEVICES names it. A rank sees its part.
inline constexpr const char* kGpus = "MUSTER_GPUS";

// Set by the batch script for muster-agent.
inline constexpr const char* kStartedAt = "MUSTER_STARTED_AT";  // of the Slurm job, seconds since 1970
/// The job's libraries. muster-agent itself may have started with others.
inline constexpr const char* kRankLibraryPath = "MUSTER_RANK_LD_LIBRARY_PATH";
inline constexpr const char* kRankPreload = "MUSTER_RANK_LD_PRELOAD";

}  // namespace spec::variable

namespace spec {

/// Variables by name. [Note: a rank's environment]
///
/// A rank's environment is made of four layers. A later layer replaces what an earlier one says of the same name.
/// 1. The base: login_environment(), and what the job took from its submitter (JobSpec.submitted_env). On Slurm it is
///    sbatch's whole environment; Slurm, its prologs and the job's setup lines then add to it.
/// 2. rank_variables(): where the rank stands.
/// 3. The job's [env].
/// 4. MUSTER_JOB_ID and the others that musterd sets for the attempt.
/// Nothing of the environment of musterd itself reaches a rank. The one exception is CUDA_VISIBLE_DEVICES on a machine
/// that shows no GPU, or with --local-gpus open. Elsewhere a local rank sees the GPUs that its attempt was given.
using Environment = std::map<std::string, std::string>;

/// The text that stands for a secret wherever a job is shown.
inline constexpr std::string_view kMask = "********";

/// True if a variable's value is hidden wherever a job is shown. It is where a part of the name, between underscores
/// and in any case, ends with TOKEN, SECRET, SECRETS, PASSWORD, PASSWD, PASSPHRASE, CREDENTIAL, CREDENTIALS, KEY or
/// KEYS, or is PASS or PWD (but for PWD itself, the working folder); where the last part is AUTH; and where the value
/// is an address with a password in it ("postgres://me:word@host"), or one of http or https with any user
/// ("https://token@host"). An empty value is no secret.
bool is_secret(std::string_view name, std::string_view value);

/// `value`, or kMask for it.
std::string shown_value(std::string_view name, const std::string& value);

/// This process's own environment.
Environment own_environment();

/// True if a job with environment = "submit" takes this variable from its submitter: what decides which programs and
/// libraries are found. PATH, VIRTUAL_ENV, PYTHONPATH, LD_LIBRARY_PATH, and names that begin with CONDA_.
bool is_taken(std::string_view name);
/// Those variables of a submitter's environment.
Environment taken_from(const Environment& submitter);

}  // namespace spec
