#pragma once

#include <functional>
#include <mutex>
#include <optional>

#include "runtime/clock.h"
#include "runtime/slurm/slurm_executor.h"
#include "runtime/slurm/submission.h"

namespace runtime::on_slurm {

/// Hands attempts to Slurm, each at most once, alone or as arrays. Thread-safe for different attempts.
class Launcher {
 public:
  Launcher(::slurm::Scheduler& scheduler, Clock& clock, const SlurmOptions& options);

  /// Whether an attempt is over, as the store has it; before anything is launched. Without it none is.
  void set_history(std::function<bool(const core::AttemptKey&)> is_over) { is_over_ = std::move(is_over); }
  std::vector<LaunchAnswer> launch_all(const std::vector<LaunchRequest>& requests);
  /// What launch_all() would hand over of attempts that it has not seen yet, but for the dependency of one array on
  /// another, whose number is not known before. Nothing is written.
  std::vector<std::string> scripts(const std::vector<LaunchRequest>& requests);
  /// "muster:<store>:<job>.<attempt>"; of an array the set's.
  std::string comment_of(const core::AttemptKey& key) const;
  /// The attempt that a comment of ours speaks of; nullopt: a stranger's, or a set's.
  std::optional<core::AttemptKey> key_of(const std::string& comment) const;
  /// The folder of the array that a comment of ours speaks of; nullopt: a stranger's, or that of an attempt alone.
  std::optional<std::filesystem::path> set_of(const std::string& comment) const;

 private:
  /// Requests submitted as one array.
  struct Set {
    std::filesystem::path folder;
    std::vector<std::size_t> members;  // indices into the requests
  };
  /// What the arrays of one limited sweep know of those before them.
  struct Chain {
    std::string after;    // "afterany:12"; empty: no other is to end first
    bool broken = false;  // an earlier one could not be handed over yet
  };
  std::string comment_of_set(const core::AttemptKey& first) const;
  std::filesystem::path set_folder(const core::AttemptKey& first) const;
  Chain chain_of(const std::string& sweep);
  bool is_given_up(const std::filesystem::path& set_folder) const;
  void note_set(const std::string& sweep, const std::filesystem::path& set_folder);
  std::filesystem::path chain_file(const std::string& sweep) const;
  LaunchAnswer submit_alone(const LaunchRequest& request);
  Submitter::Outcome try_submit(const LaunchRequest& request);
  std::vector<Set> fresh_sets(const std::vector<LaunchRequest>& requests, const std::vector<std::size_t>& fresh);
  void prepare_set(std::vector<LaunchRequest> members, const std::filesystem::path& folder,
                   const ::slurm::BatchScript& script, const std::string& after);
  ::slurm::BatchScript script_of(const LaunchRequest& request) const;
  ::slurm::BatchScript script_of_set(const std::vector<LaunchRequest>& members, const std::string& after) const;
  static bool is_complete(const std::filesystem::path& set_folder);
  Submitter::Outcome submit_next(const std::vector<LaunchRequest>& requests, const Set& set, Chain& chain);
  Submitter::Outcome submit_set(const std::filesystem::path& folder);
  LaunchAnswer answer(const core::AttemptKey& key, const Submitter::Outcome& outcome,
                      std::optional<std::uint32_t> index);
  bool forwards_signals();
  std::uint64_t largest_array();
  std::optional<::slurm::ClusterConfig> config();

  ::slurm::Scheduler& scheduler_;
  Clock& clock_;
  const SlurmOptions& options_;
  Submitter submitter_;
  std::function<bool(const core::AttemptKey&)> is_over_;
  std::mutex chain_mutex_;  // held while a limited sweep is handed over: its arrays one after the other
  std::mutex config_mutex_;
  std::optional<::slurm::ClusterConfig> config_;
};

}  // namespace runtime::on_slurm
