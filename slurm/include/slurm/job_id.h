#pragma once

#include <compare>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace slurm {

/// What Slurm calls a job: "123", or one element of an array: "123_4".
///
/// Never proof of identity by itself: a slurmctld that loses its last seconds gives the same number to the next job.
/// Keep it together with the job's comment.
struct JobId {
  std::uint64_t job = 0;
  std::optional<std::uint32_t> array_task{};

  auto operator<=>(const JobId&) const = default;
};

/// "123" or "123_4", as sbatch, scancel and scontrol take it.
std::string to_string(const JobId& id);

/// Nothing if the text is not exactly such an id; job 0 is none.
std::optional<JobId> parse_job_id(std::string_view text);

/// The part of an array that has not started yet and that Slurm keeps as one: "123_[0-5,9%2]".
struct ArrayRemainder {
  std::uint64_t job = 0;
  std::vector<std::uint32_t> tasks{};          // ascending, each once
  std::optional<std::uint32_t> parallelism{};  // what follows %
  bool cut_short = false;                      // Slurm abridged the list ("0-5,..."): tasks is only its beginning

  bool operator==(const ArrayRemainder&) const = default;
};

/// Everything that squeue and sacct print in a job id's column. Nothing for heterogeneous jobs ("123+0"), steps
/// ("123.0") and nonsense. An array is at most 4,000,001 tasks, Slurm's own bound; beyond that nothing.
std::optional<std::variant<JobId, ArrayRemainder>> parse_listed_id(std::string_view text);

/// "0-3,7" for {0,1,2,3,7}: what --array takes. The order given does not matter.
std::string compress_tasks(std::vector<std::uint32_t> tasks);

}  // namespace slurm
