#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "controller/core/types.h"
#include "controller/executors/executor.h"
#include "controller/executors/slurm/submission.h"

namespace executors::on_slurm {

/// The arrays that were prepared for Slurm, and which attempts are in each.
///
/// An array has one folder, <data>/slurm/set-<first job>.<attempt>, with three files: set.json has the attempts by
/// index, set_launch.json what their tasks start (agent/protocol/attempt_set.h), slurm.json the submission. A waiting
/// attempt has no file of its own. So after a restart the arrays are read to find the one of an attempt: those alone
/// whose first job is less than core::kMostSweepJobs below the attempt's, which an array of its sweep is. Each is read
/// once.
///
/// An attempt is in one array at most. An array that Slurm surely does not have is forgotten before its attempts go
/// into another one. Thread-safe.
class ArraySets {
 public:
  /// The folder of a controller's arrays: <data>/slurm.
  explicit ArraySets(std::filesystem::path folder) : folder_(std::move(folder)) {}

  std::filesystem::path folder_of(const core::AttemptKey& first) const;
  /// The array of this attempt, and its index there; nullopt: none. Throws std::system_error.
  std::optional<agent::protocol::ElementPlace> find(const core::AttemptKey& key);
  /// The submission of an attempt's array, as a record of the attempt; nullopt: it is in none, or sbatch was never
  /// called for it. Throws std::system_error.
  std::optional<SubmissionRecord> record_of(const core::AttemptKey& key);
  /// Writes the array of these attempts, in the order of their indices, in place of an earlier one with the same first
  /// attempt. Durable when it returns. Throws std::system_error.
  void write(const std::vector<LaunchRequest>& members, bool forward_signals);
  /// Forgets an array that Slurm surely does not have, durably. The record of its submission stays: it tells how often
  /// that has failed. Throws std::system_error.
  void forget(const std::filesystem::path& folder);
  /// Nobody asks for this attempt again.
  void over(const core::AttemptKey& key);

 private:
  void list_once();
  void read(const std::filesystem::path& folder);
  void drop(const std::filesystem::path& folder);

  const std::filesystem::path folder_;
  std::mutex mutex_;
  bool listed_ = false;
  std::multimap<core::JobId, std::filesystem::path> unread_;  // by the first job
  std::map<core::AttemptKey, agent::protocol::ElementPlace> places_;
};

}  // namespace executors::on_slurm
