#pragma once

#include <functional>
#include <mutex>
#include <optional>
#include <string>
#include <utility>

#include "controller/executors/slurm/launcher.h"
#include "controller/executors/slurm/listings.h"
#include "controller/executors/slurm/node_check.h"
#include "controller/executors/slurm/poll_pace.h"

namespace executors::on_slurm {

/// Asks Slurm about the attempts of the table, hands them what it says, and carries out what they want of Slurm.
///
/// One poll: silent nodes are asked, status files are read, squeue lists all jobs. Each attempt then gets its
/// Observation. Accounting is asked about ends that no listing tells. Jobs are cancelled. While Slurm can't be reached
/// a poll ends at the first call without an answer, and trouble() says why.
///
/// poll() belongs to one thread; the rest is thread-safe.
class Poller {
 public:
  Poller(::slurm::Scheduler& scheduler, const common::Clock& clock, AttemptTable& table, Listings& listings,
         const Launcher& launcher)
      : scheduler_(scheduler), clock_(clock), table_(table), listings_(listings), launcher_(launcher) {}

  /// Before the first poll.
  void set_history(std::function<bool(const core::AttemptKey&)> is_over) { is_over_ = std::move(is_over); }
  void set_lost_nodes(std::function<LostNodes()> lost) { lost_nodes_ = std::move(lost); }

  /// True: Slurm has answered with a listing that is to be believed.
  bool poll();
  /// When the newest one came (monotonic).
  core::Millis listed_at() const { return listed_at_; }

  std::optional<Trouble> trouble() const;
  SlurmClock slurm_clock() const;
  /// Tells whether a node is there. Has the next poll ask the node if nothing is known.
  NodeCheck::Word word_of(const std::string& node, core::Millis now);

 private:
  using Job = std::pair<const ::slurm::ListedJob*, core::AttemptKey>;

  void forget_cancelled();
  void read_files();
  void ask_clock();
  void take_listing(const Listing& listing, core::Millis asked_at);
  std::string cancel_wanted();
  void note(const std::string& why);
  void read_why_started_again();
  void ask_accounting(const Listing& listing);
  void cancel_leftovers(const std::vector<::slurm::ListedJob>& jobs);
  std::vector<Job> unfollowed(const std::vector<::slurm::ListedJob>& jobs);
  std::optional<core::AttemptKey> key_of(const ::slurm::ListedJob& job);
  void ask_nodes();
  void tell_unfit_nodes(const Listing& listing);
  void tell_nodes_without_launch(const Listing& listing);
  DownNodes down_nodes(const Listing& listing);
  std::string end_exclusions();

  ::slurm::Scheduler& scheduler_;
  const common::Clock& clock_;
  AttemptTable& table_;
  Listings& listings_;
  const Launcher& launcher_;
  std::function<bool(const core::AttemptKey&)> is_over_;
  std::function<LostNodes()> lost_nodes_;
  core::Millis listed_at_{0};
  std::map<::slurm::JobId, core::Millis> left_since_;  // jobs whose attempts are over
  /// The attempts of each array by its comment, read once while some of its elements wait or run.
  std::map<std::string, std::vector<core::AttemptKey>> sets_;
  mutable std::mutex mutex_;
  std::optional<Trouble> trouble_;
  SlurmClock slurm_clock_;
  NodeCheck node_check_;
};

}  // namespace executors::on_slurm
