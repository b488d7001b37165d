#pragma once
#include <cstdint>
#include <memory>
#include <vector>

#include "fsdp/communicator.h"

namespace fsdp {

class Unit;

/// What the units of one model share: the order in which they run, the current backward, the reduction in flight, and
/// the bytes they occupy.
///
/// An iteration records its forward order; the next iteration prefetches in that order. A new iteration begins when a
/// unit that has run already runs again outside of any other unit. The backward order is the reverse of the order in
/// which this iteration's forwards ended. A changed order costs one useless gather and never gives a wrong result.
class Schedule {
 public:
  explicit Schedule(Communicator& communicator) : communicator_(communicator) {}

  Communicator& communicator() { return communicator_; }
  void add(Unit& unit) { units_.push_back(&unit); }

  bool gradient_sync() const { return gradient_sync_; }
  void set_gradient_sync(bool sync) { gradient_sync_ = sync; }

  /// Records the run. Returns the units to gather next.
  std::vector<Unit*> enter_forward(Unit& unit);
  /// `recorded` says that a backward will come for this run.
  void leave_forward(Unit& unit, bool recorded);
  /// Adds `unit` to the current backward; the end of that backward leaves all added units. Returns the units to gather
  /// next.
  std::vector<Unit*> enter_backward(Unit& unit);

  /// Lets `unit` start a reduction. Finishes the previous reduction first, so that at most one unit holds reduction
  /// buffers.
  void admit_reduction(Unit& unit);

  void count_gathered(std::int64_t bytes);
  void count_unreduced(std::int64_t bytes);
  std::int64_t gathered_bytes_peak() const { return gathered_peak_; }
  std::int64_t unreduced_bytes_peak() const { return unreduced_peak_; }

  /// Lives while a unit runs. Its destructor keeps the nesting depth right when forward throws.
  class Run {
   public:
    explicit Run(Schedule& schedule) : schedule_(schedule) { ++schedule_.depth_; }
    ~Run() { --schedule_.depth_; }
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;

   private:
    Schedule& schedule_;
  };

 private:
  void end_backward();
  std::vector<Unit*> following(const std::vector<Unit*>& order, const Unit& unit) const;

  Communicator& communicator_;
  std::vector<Unit*> units_;
  bool gradient_sync_ = true;

  int depth_ = 0;
  std::vector<Unit*> order_;      // forward order of the last iteration, each unit once
  std::vector<Unit*> recording_;  // forward order of this iteration
  std::vector<Unit*> ended_;      // units in the order their forwards ended in this iteration, each once
  std::vector<Unit*> backward_order_;
  std::vector<Unit*> entered_;  // units that the current backward has reached
  int graph_task_ = -1;         // autograd's number of the current backward

  Unit* reducing_ = nullptr;
  std::int64_t gathered_now_ = 0;
  std::int64_t gathered_peak_ = 0;
  std::int64_t unreduced_now_ = 0;
  std::int64_t unreduced_peak_ = 0;
};

}  // namespace fsdp
