#pragma once

#include <map>
#include <string>
#include <vector>

#include "controller/common/clock.h"
#include "controller/executors/slurm/attempt_table.h"

namespace executors::on_slurm {

/// The jobs of one listing by their numbers. The jobs must outlive it.
class Listing {
 public:
  explicit Listing(const std::vector<::slurm::ListedJob>& jobs);
  const std::vector<::slurm::ListedJob>& jobs() const { return jobs_; }
  bool has(const ::slurm::JobId& id) const { return by_id_.contains(id); }
  /// nullptr: the job is not listed, or its number is another job's now.
  const ::slurm::ListedJob* row_of(const JobIdentity& job) const;

 private:
  const std::vector<::slurm::ListedJob>& jobs_;
  std::map<::slurm::JobId, const ::slurm::ListedJob*> by_id_;
};

/// Asks Slurm for listings, and tells false ones from true ones: see JobDoubt. Thread-safe.
class Listings {
 public:
  Listings(::slurm::Scheduler& scheduler, const common::Clock& clock, AttemptTable& table, std::string user)
      : scheduler_(scheduler), clock_(clock), table_(table), user_(std::move(user)) {}

  /// Slurm's list. Unreachable, if the list contradicts what is known for certain and Slurm, asked for single jobs,
  /// proves the list wrong.
  ::slurm::Answer<std::vector<::slurm::ListedJob>> ask(core::Millis asked_at);

  /// What the listing has of this attempt contradicts what is known.
  static bool contradicts(const Tracked& tracked, const ::slurm::ListedJob* row, core::Millis asked_at);

 private:
  std::vector<std::uint64_t> doubtful(const Listing& listing, core::Millis asked_at);
  std::string what_is_wrong(const Listing& listing, core::Millis asked_at, std::uint64_t number,
                            const std::vector<::slurm::ListedJob>& found);

  ::slurm::Scheduler& scheduler_;
  const common::Clock& clock_;
  AttemptTable& table_;
  const std::string user_;
};

}  // namespace executors::on_slurm
