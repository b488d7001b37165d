#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "agent/protocol/launch.h"
#include "controller/common/clock.h"
#include "controller/executors/executor.h"
#include "slurm/scheduler.h"
#include "spec/variables.h"

namespace executors::on_slurm {

/// The record of the submission for a folder: <folder>/slurm.json.
struct SubmissionRecord {
  std::string comment;
  std::optional<::slurm::JobId> id;  // nullopt: sbatch was called, and its answer is not known
  std::int64_t tried_at_ms = 0;      // wall clock
  std::int64_t ended_at_ms = 0;      // that sbatch was gone then, without an id; 0: it may still run
  bool unsure = false;               // Slurm may have the job
  bool sbatch_ended = false;         // sbatch ended by itself: no request of it is on its way any more
  std::string why;                   // what sbatch said, if `unsure`
  std::uint32_t failures = 0;        // the number of sbatchs in a row that left it unsure
  // Set for an element of an array: the folder of the array, and the index in it.
  std::string set_folder;
  std::uint32_t index = 0;
  std::uint32_t ranks_per_node = 1;
  core::Millis stop_grace{30'000};
  core::Millis time_limit{-1};        // the limit given to Slurm, as in core::AttemptLaunched
  std::string exclude;                // the nodes that the job file excludes
  std::vector<std::string> left_out;  // the nodes that are left out for a while
};

/// nullopt: there is no record, or it is unreadable. Only Submitter may treat an unreadable record as none.
std::optional<SubmissionRecord> read_record(const std::filesystem::path& folder);
/// The log that Slurm and the lines before the ranks write. The log of an element is in the folder of its array, once
/// the element has begun; before, it has none.
std::filesystem::path slurm_log_of(const std::filesystem::path& attempt_folder);
std::filesystem::path log_of_element(const agent::protocol::ElementPlace& place);
/// True if there is a record, or nobody can tell. Without a record sbatch was not called, or Slurm refused the job.
bool may_be_submitted(const std::filesystem::path& folder);
/// Durable when it returns. Throws std::system_error.
void write_record(const std::filesystem::path& folder, const SubmissionRecord& record);
/// Removes the record of a submission that Slurm surely does not have.
void forget_record(const std::filesystem::path& folder);

/// Lists the jobs that Slurm has now. An answer that cannot be true counts as no answer.
using ListJobs = std::function<::slurm::Answer<std::vector<::slurm::ListedJob>>()>;

/// Submits at most once for each folder, whatever crashes in between. Three things make that sure:
/// - The record is written before sbatch is called.
/// - sbatch inherits a lock. The lock tells whether an earlier sbatch may still be at work.
/// - If nobody knows whether Slurm has the job, its comment is looked for before the next sbatch. The listing is asked
///   for after the earlier sbatch was gone. A job that is listed while an sbatch still holds the lock is found, too.
///
/// A submission that failed without being refused is made again after 10 s, then 20 s, up to every 5 min. A submission
/// that can have reached nobody is made again after 1 s, then 2 s, up to every 10 s.
class Submitter {
 public:
  Submitter(::slurm::Scheduler& scheduler, common::Clock& clock, ListJobs list)
      : scheduler_(scheduler), clock_(clock), list_(std::move(list)) {}

  /// LaunchLater::unsure: Slurm may have the job.
  using Outcome = std::variant<::slurm::JobId, ::slurm::Refused, LaunchLater>;

  /// Fills the id, the times and `unsure` of `record`, and keeps the rest as it is. sbatch gets `environment`, and the
  /// job inherits it. Thread-safe for different folders. Throws std::system_error if the folder cannot be written.
  Outcome submit(const std::filesystem::path& folder, SubmissionRecord record, const std::string& script,
                 const spec::Environment& environment);

  /// The outcome of the submission for a folder: the id, or LaunchLater while nobody knows. nullopt: Slurm does not
  /// have the job.
  std::optional<Outcome> look(const std::filesystem::path& folder);

 private:
  struct Listing {
    std::int64_t asked_at_ms;
    ::slurm::Answer<std::vector<::slurm::ListedJob>> jobs;
  };
  std::int64_t now_ms() const { return clock_.wall().time_since_epoch().count(); }
  std::shared_ptr<const Listing> listing_since(std::int64_t ended_at_ms);
  std::optional<Outcome> look_for(const std::filesystem::path& folder, SubmissionRecord& record);
  Outcome look_beside_sbatch(const std::filesystem::path& folder);
  bool is_submitted_in(const std::filesystem::path& folder, std::uint64_t number);
  std::optional<::slurm::JobId> listed(const Listing& listing, const std::filesystem::path& folder,
                                       SubmissionRecord& record);
  core::Millis pause_unreached(const std::filesystem::path& folder, bool again);
  Outcome failed(const std::filesystem::path& folder, SubmissionRecord record, const ::slurm::Unsure& how);

  ::slurm::Scheduler& scheduler_;
  common::Clock& clock_;
  const ListJobs list_;
  std::mutex mutex_;
  std::atomic<std::uint64_t> listings_{0};
  std::shared_ptr<const Listing> newest_;
  std::map<std::filesystem::path, unsigned> unreached_;  // the number of sbatchs in a row that reached nobody
};

}  // namespace executors::on_slurm
