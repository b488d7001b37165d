#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "controller/core/job.h"
#include "controller/partitions/partition_policies.h"
#include "muster/v1/job.pb.h"

namespace admission {

/// At most `most` jobs with this key have an attempt at once.
struct Limit {
  std::string key;  // "sweep:s12", "partition:gpu/ada"
  std::uint32_t most = 0;
  std::string why, action;  // what a job that waits for a slot is told
  bool operator==(const Limit&) const = default;
};

/// The key under which jobs of a sweep are counted.
std::string sweep_key(const std::string& sweep);
/// The key under which jobs of a user in a partition are counted; for an empty user the beginning of all users' keys.
std::string partition_key(const std::string& partition, const std::string& user);

/// The limits of a job. Pure. `policies`: null where the job does not go to Slurm.
///
/// A sweep with slurm.array_parallelism leaves its limit to Slurm's arrays. Where a partition limits running jobs, jobs
/// go to Slurm one by one and not as arrays, so muster keeps that number itself.
std::vector<Limit> limits_of(const core::Job& job, const muster::v1::JobSpec& spec,
                             const partitions::PartitionPolicies* policies);

/// Jobs that count under one key.
struct Count {
  std::uint32_t taken = 0;    // they have a slot: an attempt, or one on its way
  std::uint32_t waiting = 0;  // no attempt of theirs runs; one in a scheduler's queue is taken as well
  std::uint32_t open = 0;     // they have not ended
  bool operator==(const Count&) const = default;
};

/// Which jobs have a slot of their limits right now: one count for each key. It follows from what the store says, so it
/// is right again after a restart: jobs' histories, and the rows of the outbox that are `launching`.
///
///   no slot --enter()--> launching --an attempt is there--> attempt --it has ended--> no slot
///                            |                               |   ^
///                            '--settle(): none is there      |   '--enter(), or it has started
///                                                            '--park(): its queue holds it for a person
///
/// A job may be cancelled while it is launching: its slot stays taken until settle(). Not thread-safe: see Admission.
class Ledger {
 public:
  /// Takes in what the job's history says.
  void follow(const core::Job& job);
  /// Where the job is counted besides its sweep; empty: nowhere.
  void set_partition(core::JobId job, const std::string& partition);
  /// Open jobs of which that is not said yet.
  const std::set<core::JobId>& without_partition() const { return unplaced_; }

  /// The job's launch is under way, or its queue may let the attempt go: it takes its slots.
  void enter(const core::Job& job);
  /// The launch is over: the slots are free again unless an attempt is there.
  void settle(core::JobId job);
  /// The attempt's queue holds it for a person, for certain.
  void park(const core::Job& job);

  bool has_slots(core::JobId job) const;
  /// The first limit that has no free slot; null: all have one.
  const Limit* full(std::span<const Limit> limits) const;
  Count count(const std::string& key) const;
  /// Open jobs under all keys that begin so.
  std::uint32_t open_below(const std::string& prefix) const;

 private:
  struct Entry {
    std::string sweep, user;
    std::optional<std::string> partition;
    bool launching = false;
    core::AttemptNumber attempt = 0;  // the one that has not ended; 0: none
    bool queued = false;              // it waits in a scheduler's queue
    bool parked = false;              // which holds it for a person
    bool ended = false;               // the job, which is here only as long as it is launching
    bool has_slots() const { return launching || (attempt != 0 && !parked); }
    bool waits() const { return !ended && (attempt == 0 || queued); }
  };
  template <typename Change>
  void change(core::JobId job, Change make);
  void add(const Entry& entry, std::uint32_t by);
  void add(const std::string& key, const Entry& entry, std::uint32_t by);

  std::map<core::JobId, Entry> jobs_;
  std::set<core::JobId> unplaced_;
  std::map<std::string, Count> counts_;
};

}  // namespace admission
