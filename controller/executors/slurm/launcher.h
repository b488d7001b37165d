#pragma once

#include <chrono>
#include <cstdint>
#include <filesystem>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "controller/common/clock.h"
#include "controller/core/job.h"
#include "controller/executors/executor.h"
#include "controller/executors/slurm/attempt_files.h"
#include "controller/executors/slurm/slurm_executor.h"
#include "controller/executors/slurm/slurm_submission.h"
#include "slurm/batch_script.h"

namespace executors::on_slurm {

/// A limit in Slurm's whole minutes: rounded up, at least one. 0 stays 0 (no limit).
std::chrono::minutes slurm_minutes(core::Millis limit);

/// muster-agent, and the LD_LIBRARY_PATH it starts with. [Note: libraries of the job's environment]
///
/// The libraries of a job's environment are for its ranks. An old conda's libstdc++.so.6 would keep muster-agent from
/// starting. So a shell starts muster-agent with the libraries that musterd itself was started with, and hands it the
/// job's LD_LIBRARY_PATH and LD_PRELOAD under other names. muster-agent gives them back to its rank. The shell runs on
/// the rank's node, so it sees what setup lines, srun or a task prolog have changed.
struct AgentProgram {
  std::string path;            // absolute
  std::string libraries = {};  // empty: none
};

/// The script of one attempt. Pure. Arguments, environment and folders of the user could be hostile. They travel in the
/// attempt's launch.json, not in the script.
::slurm::BatchScript plan_script(const LaunchRequest& request, const AgentProgram& agent, const std::string& comment);

/// The script of several attempts of one sweep as an array. `set_file` tells each element its attempt. The requests
/// must ask Slurm for the same things: see same_shape().
::slurm::BatchScript plan_array(const std::vector<LaunchRequest>& requests, const AgentProgram& agent,
                                const std::string& comment, const std::string& set_file);
bool same_shape(const LaunchRequest& a, const LaunchRequest& b);

/// The name in a Slurm comment: an attempt, or the first attempt of an array.
struct CommentName {
  core::AttemptKey first;
  bool is_array = false;
};
/// "muster:<store>:<job>.<attempt>", or "muster:<store>:set.<job>.<attempt>" for an array.
std::string comment_of(const std::string& store_name, const CommentName& name);
/// nullopt: the comment is not of the store with this name (common::store_name()).
std::optional<CommentName> read_comment(const std::string& store_name, std::string_view comment);

/// Where attempts were submitted: alone, or in arrays that were prepared for Slurm.
///
/// An array has one folder, <data>/slurm/set-<first job>.<attempt>, with three files: set.json has the attempts by
/// index, set_launch.json what their tasks start (agent/protocol/launch.h), slurm.json the submission. A waiting
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
  /// The record of an attempt's submission, alone or in an array; nullopt: there is none. Throws std::system_error.
  std::optional<SubmissionRecord> record_of(const core::AttemptKey& key, const std::filesystem::path& attempt_folder);
  /// The record as record_of() has it, or one that names an array whose submission was never begun.
  std::optional<SubmissionRecord> prepared(const core::AttemptKey& key, const std::filesystem::path& attempt_folder);
  /// Writes the array of these attempts, in the order of their indices, in place of an earlier one with the same first
  /// attempt. Durable when it returns. Throws std::system_error.
  void write(const std::vector<LaunchRequest>& members, bool forward_signals);
  /// Forgets an array that Slurm surely does not have, durably. The record of its submission stays: it tells how often
  /// that has failed. Throws std::system_error.
  void forget(const std::filesystem::path& folder);
  /// Nobody asks for this attempt again.
  void over(const core::AttemptKey& key) {
    std::lock_guard lock(mutex_);
    places_.erase(key);
  }

 private:
  std::optional<agent::protocol::ElementPlace> find(const core::AttemptKey& key);
  void list_once();
  void read(const std::filesystem::path& folder);
  void drop(const std::filesystem::path& folder);

  const std::filesystem::path folder_;
  std::mutex mutex_;
  bool listed_ = false;
  std::multimap<core::JobId, std::filesystem::path> unread_;  // by the first job
  std::map<core::AttemptKey, agent::protocol::ElementPlace> places_;
};

class AttemptTable;

/// Hands attempts to Slurm, each at most once, alone or as arrays. The table learns of each before the answer is given.
/// Thread-safe for different attempts.
class Launcher : public AttemptLauncher {
 public:
  Launcher(::slurm::Scheduler& scheduler, common::Clock& clock, const SlurmOptions& options, AttemptTable& table,
           ListJobs list);

  LaunchAnswer launch(const LaunchRequest& request) override { return launch_all({request}).front(); }
  std::vector<LaunchAnswer> launch_all(const std::vector<LaunchRequest>& requests) override;
  bool prepares() const override { return true; }
  std::optional<LaunchAnswer> withdraw(const LaunchRequest& request) override;
  /// The scripts that launch_all() would submit for attempts that it has not seen yet. Writes nothing.
  std::vector<std::string> scripts(const std::vector<LaunchRequest>& requests);
  /// nullopt: the comment is not this controller's.
  std::optional<CommentName> name_of(const std::string& comment) const {
    return read_comment(options_.store_name, comment);
  }
  std::filesystem::path folder_of_set(const core::AttemptKey& first) const { return sets_.folder_of(first); }
  /// The record of an attempt's submission, alone or in an array. Where there is none, it has the comment alone. Throws
  /// std::system_error.
  SubmissionRecord record_to_follow(const core::AttemptKey& key, const std::filesystem::path& attempt_folder);
  /// Nobody asks for this attempt again.
  void over(const core::AttemptKey& key) { sets_.over(key); }

 private:
  /// The indices of requests that are submitted as one array, or of one request that is submitted alone.
  using Set = std::vector<std::size_t>;
  /// An array that was prepared earlier.
  struct Known {
    std::optional<Submitter::Outcome> outcome;  // nullopt: Slurm surely does not have the array
    std::vector<core::AttemptKey> members;
  };
  using Answers = std::vector<LaunchAnswer>;

  Answers hand_over(const std::vector<LaunchRequest>& requests);
  /// The answer of an earlier launch; nullopt: Slurm surely does not have the attempt.
  std::optional<LaunchAnswer> look(const LaunchRequest& request);
  void take(const LaunchRequest& request, LaunchAnswer& answer);
  /// True if Slurm may have this attempt, or nobody can tell.
  bool may_be_submitted(const LaunchRequest& request);
  std::vector<std::size_t> look_for_sets(const std::vector<LaunchRequest>& requests,
                                         const std::vector<std::size_t>& indices, Answers& answers);
  Known look_for_set(const std::filesystem::path& folder) {
    return {submitter_.look(folder), read_set_file(folder / kSetFile)};
  }
  std::optional<LaunchAnswer> earlier(const LaunchRequest& request, const SubmissionRecord& record, const Known& known);
  std::vector<Set> fresh_sets(const std::vector<LaunchRequest>& requests, const std::vector<std::size_t>& fresh);
  ::slurm::BatchScript script_of(const std::vector<LaunchRequest>& members) const;
  /// `full`: why no further request of this round is submitted.
  void submit_next(const std::vector<LaunchRequest>& requests, const Set& set, std::optional<LaunchLater>& full,
                   Answers& answers);
  /// One request is submitted alone, several are submitted as an array.
  Submitter::Outcome submit(std::vector<LaunchRequest> members);
  Submitter::Outcome submit_once(const std::vector<LaunchRequest>& members);
  LaunchAnswer answer(const core::AttemptKey& key, const Submitter::Outcome& outcome,
                      std::optional<std::uint32_t> index);
  bool forwards_signals() {
    const auto known = config();
    return known && known->field("ProctrackType") == "proctrack/pgid";
  }
  std::uint64_t largest_array();
  std::optional<::slurm::ClusterConfig> config();
  void forget_config() {
    std::lock_guard lock(config_mutex_);
    config_.reset();
  }

  ::slurm::Scheduler& scheduler_;
  common::Clock& clock_;
  const SlurmOptions& options_;
  AttemptTable& table_;
  const AgentProgram task_;
  Submitter submitter_;
  ArraySets sets_;
  std::mutex sets_mutex_;  // held while arrays are looked for, made and handed over
  std::mutex config_mutex_;
  std::optional<::slurm::ClusterConfig> config_;
};

}  // namespace executors::on_slurm
