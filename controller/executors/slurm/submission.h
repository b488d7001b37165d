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

#include "base/clock.h"
#include "executors/executor.h"
#include "launch/environment.h"
#include "slurm/scheduler.h"

namespace runtime::on_slurm {

/// What a folder remembers of the submission made for it: <folder>/slurm.json.
struct SubmissionRecord {
  std::string comment;
  std::optional<::slurm::JobId> id;  // nothing: sbatch was called, and what came of it is not known
  std::int64_t tried_at_ms = 0;      // wall clock
  std::int64_t ended_at_ms = 0;      // when that sbatch was known to be gone, without an id; 0: it may still run
  bool unsure = false;               // whether Slurm has taken it is not known
  bool sbatch_ended = false;         // of one that is unsure: by itself, so that nothing of it is on its way any more
  std::string why;                   // what sbatch said of one that is unsure
  std::uint32_t failures = 0;        // so many sbatchs in a row left it unsure
  // Of an attempt that is one element of an array: the set's folder and its index there.
  std::string set_folder;
  std::uint32_t index = 0;
  std::uint32_t ranks_per_node = 1;
  core::Millis stop_grace{30'000};
  core::Millis time_limit{-1};        // that Slurm was told, as core::AttemptLaunched has it
  std::string exclude;                // the nodes that its job file wants none of
  std::vector<std::string> left_out;  // and those that were left out for a while
};

/// nullopt: none, or unreadable (treated as none is only safe where nothing can have been submitted: see Submitter).
std::optional<SubmissionRecord> read_record(const std::filesystem::path& folder);
/// What Slurm and the lines before the ranks write of an attempt: into the array's folder if it is an element of one.
std::filesystem::path slurm_log_of(const std::filesystem::path& attempt_folder);
/// Whether there is one, as far as can be told: without it sbatch was surely not called, or refused.
bool may_be_submitted(const std::filesystem::path& folder);
/// Durable when it returns. Throws std::system_error.
void write_record(const std::filesystem::path& folder, const SubmissionRecord& record);
/// Of what was surely never submitted.
void forget_record(const std::filesystem::path& folder);

/// The jobs that Slurm has now; an answer that cannot be true is none.
using ListJobs = std::function<::slurm::Answer<std::vector<::slurm::ListedJob>>()>;

/// Submits at most once for each folder, whatever crashes in between: the record is written before sbatch is called, a
/// lock that sbatch inherits tells whether an earlier sbatch may still be under way, and a submission of which it is
/// not known whether Slurm has taken it is looked for by its comment in Slurm's list, asked for after that sbatch was
/// gone, before another is made. What is listed while an sbatch still holds the lock is found, too.
///
/// A submission that failed without being refused is made again after 10 s, then 20 s, and so on up to 5 min; one that
/// can have reached nobody after 1 s, then 2 s, and so on up to 10 s.
class Submitter {
 public:
  Submitter(::slurm::Scheduler& scheduler, Clock& clock, ListJobs list)
      : scheduler_(scheduler), clock_(clock), list_(std::move(list)) {}

  struct Later {
    std::string why;
    bool unsure = true;  // Slurm may have taken it
    core::Millis pause = kTryAgainAfter;
  };
  using Outcome = std::variant<::slurm::JobId, ::slurm::Refused, Later>;

  /// `record` says what is to be kept beside; its id, times and unsure are filled here. Thread-safe for different
  /// folders. `environment` is sbatch's, and so the job's. Throws std::system_error if the folder takes no writes.
  Outcome submit(const std::filesystem::path& folder, SubmissionRecord record, const std::string& script,
                 const launch::Environment& environment);

  /// What became of the submission made for a folder: its id, or Later while that can't be known; nullopt: Slurm has
  /// taken none.
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
  std::optional<::slurm::JobId> listed(const Listing& listing, const std::filesystem::path& folder,
                                       SubmissionRecord& record);
  core::Millis pause_unreached(const std::filesystem::path& folder, bool again);
  Outcome failed(const std::filesystem::path& folder, SubmissionRecord record, const ::slurm::Unsure& how);

  ::slurm::Scheduler& scheduler_;
  Clock& clock_;
  const ListJobs list_;
  std::mutex mutex_;
  std::atomic<std::uint64_t> listings_{0};
  std::shared_ptr<const Listing> newest_;
  std::map<std::filesystem::path, unsigned> unreached_;  // sbatchs in a row that reached nobody
};

}  // namespace runtime::on_slurm
