#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "controller/common/changes.h"
#include "controller/core/job.h"
#include "controller/executors/executor.h"
#include "controller/partitions/partition_policies.h"
#include "muster/v1/job.pb.h"
#include "muster/v1/machine.pb.h"

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

  bool has_slots(core::JobId job) const {
    const auto found = jobs_.find(job);
    return found != jobs_.end() && found->second.has_slots();
  }
  /// The first limit that has no free slot; null: all have one.
  const Limit* full(std::span<const Limit> limits) const;
  Count count(const std::string& key) const {
    const auto found = counts_.find(key);
    return found == counts_.end() ? Count{} : found->second;
  }
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
  void add(const Entry& entry, std::uint32_t by) {
    if (!entry.sweep.empty()) add(sweep_key(entry.sweep), entry, by);
    if (!entry.partition.value_or("").empty()) add(partition_key(*entry.partition, entry.user), entry, by);
  }
  void add(const std::string& key, const Entry& entry, std::uint32_t by);

  std::map<core::JobId, Entry> jobs_;
  std::set<core::JobId> unplaced_;
  std::map<std::string, Count> counts_;
};

/// Who has which GPUs and cores of musterd's own machine, and who waits for some.
///
/// Attempts' shares follow from what the store says, as in Ledger: the share in the event of an attempt's start, and
/// before that event the share in the outbox's row, which says `launching`. What somebody has is given to nobody else.
///
/// Jobs get GPUs in the order of their places, and cores likewise. What a waiting job could take is set aside for it: a
/// later job gets only what is left then. So a job that waits for many GPUs never starves behind small ones, and a job
/// that can never get what it asks for keeps nobody waiting. Not thread-safe: see Admission.
///
/// A share tells what was known of its GPUs when it was given, since a musterd that is started again may name the same
/// GPUs otherwise: by number, by UUID. A GPU of which nobody can tell whether an attempt has it is held back until that
/// attempt has ended.
class MachineLedger {
 public:
  /// The place of a job in the queue, the smallest first. A job of which no place is known comes last.
  using Place = std::uint64_t;
  static constexpr Place kLast = std::numeric_limits<Place>::max();

  explicit MachineLedger(executors::OwnMachine machine) : machine_(std::move(machine)) { count_free(); }
  MachineLedger(const MachineLedger&) = delete;
  MachineLedger& operator=(const MachineLedger&) = delete;
  const executors::OwnMachine& machine() const { return machine_; }
  /// Others have been found. What was given stays given.
  void change(executors::OwnMachine machine) {
    machine_ = std::move(machine);
    count_free();
  }
  /// Jobs that may have GPUs which are held back for them, with what they were given: "0, 1".
  const std::map<core::JobId, std::string>& in_doubt() const { return in_doubt_; }
  /// Why GPUs are held back for one of these, for people.
  std::string doubt_text(core::JobId job) const;

  /// Takes in what the job's history says.
  void follow(const core::Job& job);
  /// A launch of the job is under way, with this share.
  void enter(const core::Job& job, core::MachineShare share);
  /// The job's attempt was given nothing, and uses the first GPUs that it needs, whoever else may have them.
  void keep_first(const core::Job& job, const executors::MachineNeed& need);
  /// The launch is over: what it was given is free again unless an attempt has it.
  void settle(core::JobId job);
  /// The share of the job's launch that is under way; nullopt: there is no launch, or it was given nothing.
  std::optional<core::MachineShare> share_of(core::JobId job) const {
    const auto found = holdings_.find(job);
    return found == holdings_.end() ? std::nullopt : found->second.launch;
  }

  /// The share that a job at this place gets now; nullopt: the job must wait.
  std::optional<core::MachineShare> choose(const executors::MachineNeed& need, Place place) const;
  /// Why choose() gives nothing.
  common::Wait why(const executors::MachineNeed& need, Place place) const;
  /// From now on, until step_back(), the job waits at this place. Without effect where it can never get what it needs.
  void line_up(core::JobId job, const executors::MachineNeed& need, Place place);
  void step_back(core::JobId job);

  muster::v1::MachineView view() const;

 private:
  /// The shares of one job. A launch and the attempt that comes of it have the same share.
  struct Holding {
    std::optional<core::MachineShare> launch, attempt;
    core::AttemptNumber number = 0;
    bool assumed = false;  // no event tells the share of the attempt
  };
  /// The job that has, or may have, one GPU of the machine.
  struct Taker {
    core::JobId job = 0;    // 0: nobody
    bool may_have = false;  // and may not: nobody can tell
  };
  struct Waiting {
    core::JobId job = 0;
    executors::MachineNeed need;
  };
  using Queue = std::map<Place, Waiting>;

  /// The holding of the job was changed.
  void changed(core::JobId job);
  void count_free();
  bool can_ever(const executors::MachineNeed& need) const;
  Taker taker_of(const executors::OwnGpu& gpu) const;
  std::vector<const executors::OwnGpu*> gpus_left(const executors::MachineNeed& need, Place place) const;
  std::uint32_t cores_left(const executors::MachineNeed& need, Place place) const;
  common::Wait why_gpus(const executors::MachineNeed& need) const;
  common::Wait why_cores(const executors::MachineNeed& need) const;

  executors::OwnMachine machine_;
  std::map<core::JobId, Holding> holdings_;
  // These follow from the machine and what jobs have of it.
  std::vector<Taker> takers_;  // of each GPU of the machine
  std::map<core::JobId, std::string> in_doubt_;
  std::vector<const executors::OwnGpu*> free_gpus_;  // in the machine's order
  std::uint32_t free_cores_ = 0;
  Queue for_gpus_, for_cores_;
  std::map<core::JobId, Place> places_;  // of those that wait
};

}  // namespace admission
