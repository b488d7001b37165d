#pragma once

#include <cstdint>
#include <limits>
#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "controller/common/changes.h"
#include "controller/core/job.h"
#include "controller/executors/own_machine.h"
#include "muster/v1/machine.pb.h"

namespace admission {

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
  void change(executors::OwnMachine machine);
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
  std::optional<core::MachineShare> share_of(core::JobId job) const;

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
