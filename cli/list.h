#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "cli/client.h"

namespace cli {

struct JobQuery {
  std::vector<std::string> states = {};  // empty: all; "held": held jobs in any state
  std::string sweep = {};                // empty: jobs of any sweep and of none
  std::uint32_t limit = 100;
  std::vector<std::int64_t> ids = {};  // empty: any
  bool with_ranks = false;
  bool with_series = false;
};
/// How many jobs one call may name.
inline constexpr int kMostNamedJobs = 1000;

struct Listing {
  std::vector<muster::v1::Job> jobs;  // newest first
  std::int64_t total = 0;             // how many jobs match, including those not listed
};

/// Reads the jobs page by page. Throws a Failure if a page fails.
Listing list_jobs(Client& client, const JobQuery& query);
/// Reads the jobs in the same way, but returns the status of a page that fails. The controller has no state "held". For
/// that state this reads all jobs in states that can be held, and filters them.
grpc::Status read_jobs(Client& client, const JobQuery& query, Listing* listing);

/// Reports jobs that were named and do not exist, as `muster COMMAND`. Returns the exit code.
int tell_missing(const std::string& command, const Listing& listing, const JobQuery& query);

/// The jobs of a sweep in the order of their index, with the series that each has reported. Throws a Failure if there
/// is none.
std::vector<muster::v1::Job> jobs_of_sweep(Client& client, const std::string& sweep);

/// The jobs that `muster prune` chooses.
struct PruneRule {
  std::optional<std::chrono::milliseconds> older_than = {};  // jobs that ended longer ago than this
  std::optional<std::uint32_t> keep_last = {};               // spare this number of the newest jobs of the rule
  std::string user = {};                                     // empty: jobs of all users
};

/// The jobs to remove. `jobs` have ended, and the newest comes first. Pure.
std::vector<std::int64_t> jobs_to_prune(const std::vector<muster::v1::Job>& jobs, const PruneRule& rule,
                                        std::int64_t now_ms);

/// The word for the job's status, such as "held". An older controller sends none; then it is the state.
std::string status_of(const muster::v1::Job& job);

/// The newest attempt; an empty one, with number 0, if there is none.
const muster::v1::Attempt& newest_attempt(const muster::v1::Job& job);

/// The last part of a key, or the whole key if another of the keys has the same last part.
std::string short_name(const std::string& key, const std::vector<std::string>& keys);

/// "learning_rate=1e-4 seed=0". Keys are as short_name() has them.
std::string settings_text(const muster::v1::SweepElement& element);

// The resources that a rank uses, as cells of a table; "-": not known.

/// Cores: "0.02", "1.70", "31.5".
std::string cores_text(const muster::v1::Rank& rank);
/// The memory of all its processes. Before the first sample, what the rank has said of itself.
std::string memory_text(const muster::v1::Rank& rank);
std::string memory_peak_text(const muster::v1::Rank& rank);
/// How busy its GPUs are, in percent.
std::string gpu_text(const muster::v1::Rank& rank);
std::string gpu_memory_text(const muster::v1::Rank& rank);
/// The numbers of its GPUs on musterd's own machine.
std::string gpus_text(const muster::v1::Rank& rank);
/// True if the rank has a GPU that says what it does.
bool has_gpu(const muster::v1::Rank& rank);

}  // namespace cli
