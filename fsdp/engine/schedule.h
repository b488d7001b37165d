#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "fsdp/comm/buffer_pool.h"
#include "fsdp/comm/communicator.h"
#include "fsdp/comm/device_mesh.h"

namespace fsdp {

/// The stream that gathers start on. Without it a gather that was started ahead would begin only after all computation
/// that was queued before. On a device without streams everything happens at once.
///
/// A gather reads shards and writes into a buffer. So its stream waits for the last change of the shards, and for the
/// memory that it takes; see [Note: memory on a device with streams]. The computation waits for the gather.
class GatherStream {
 public:
  explicit GatherStream(at::Device device);

  /// Calls `gather` with this stream as the current one. `after` is what the gathered values depend on.
  void run(const std::optional<c10::Event>& after, const std::function<void()>& gather) const;
  /// Records the place that the current stream has reached, or this stream within run().
  void mark(std::optional<c10::Event>& event) const;
  /// Makes the current stream wait for a mark.
  void wait_for(const std::optional<c10::Event>& event) const;

 private:
  at::Device device_;
  std::optional<c10::Stream> stream_;  // only on devices with streams
};

class Segment;

/// Tells every rank which parameters took part in backward on any rank. A parameter that took part on none is left
/// alone by the optimizer, as one without a gradient in PyTorch.
///
/// One all-reduce of a bool a trainable parameter starts at the end of each backward that reduces. Nobody waits for it
/// before the answer is needed. It goes over the CPU, so on a GPU no host waits for the device.
class Participation {
 public:
  /// `communicator` joins all ranks, on the CPU.
  explicit Participation(Communicator& communicator) : communicator_(communicator) {}
  /// Peers may still need this rank's answer.
  ~Participation() { discard(); }
  Participation(const Participation&) = delete;
  Participation& operator=(const Participation&) = delete;

  /// Starts the exchange for `segments`, which are the same on every rank.
  void start(std::vector<Segment*> segments);
  /// Finishes the exchange, if one is under way.
  void finish();
  /// Waits for the exchange and drops its answer, for a failure.
  void discard() { fsdp::discard(pending_); }

 private:
  Communicator& communicator_;
  std::vector<Segment*> segments_;
  at::Tensor flags_;  // bool [parameters]
  std::unique_ptr<Pending> pending_;
};

class Schedule;
class Unit;

/// One backward pass, from the first unit that it reaches to its end. Autograd's callback at the end owns it. So a
/// backward that throws destroys it, and its destructor gives up what the backward has begun.
///
/// A backward that starts inside of another one (recompute, a gradient inside of forward) belongs to the outer one: its
/// units leave with it at the latest.
class Backward {
 public:
  explicit Backward(std::shared_ptr<Schedule> schedule) : schedule_(std::move(schedule)) {}
  ~Backward();
  Backward(const Backward&) = delete;
  Backward& operator=(const Backward&) = delete;

  void end();
  /// The destructor then does nothing.
  void forget() { ended_ = true; }

 private:
  std::shared_ptr<Schedule> schedule_;
  bool ended_ = false;
};

/// State that the units of one model share: the order in which they run, the current backward, the reduction in flight,
/// and the bytes they occupy.
///
/// An iteration records its forward order; the next iteration prefetches in that order. A new iteration begins when a
/// unit that has run already runs again outside of any other unit. The backward order is the reverse of the order in
/// which this iteration's forwards ended. A changed order costs one useless gather and never gives a wrong result.
class Schedule : public std::enable_shared_from_this<Schedule> {
 public:
  explicit Schedule(DeviceMesh::Shared ranks)
      : ranks_(std::move(ranks)),
        participation_(*ranks_.control),
        gathered_(std::make_shared<BufferPool>(ranks_.shard->device(), ranks_.shard->peer_memory())),
        gradients_(std::make_shared<BufferPool>(ranks_.shard->device(), ranks_.reduce->peer_memory())),
        scratch_(std::make_shared<BufferPool>(ranks_.shard->device())),
        parts_(std::make_shared<BufferPool>(ranks_.shard->device())),
        staged_(std::make_shared<BufferPool>(ranks_.shard->device(), ranks_.shard->peer_memory())),
        gather_stream_(ranks_.shard->device()) {}

  Tracer& tracer() { return *ranks_.tracer; }
  /// The ranks that parameters are sharded over.
  Communicator& communicator() { return *ranks_.shard; }
  /// The ranks that parameters are sharded over, for reductions of gradients.
  Communicator& reduce() { return *ranks_.reduce; }
  /// The ranks with the same shard; null: there are no others.
  Communicator* replicas() { return ranks_.replicate.get(); }
  /// Lets units keep parts of their gathered parameters within `group`; see DeviceMesh::shard_group().
  void add_shard_group(std::shared_ptr<Communicator> group) { shard_groups_[group->world_size()] = std::move(group); }
  /// The group of so many ranks that add_shard_group() has got; null: there is none.
  Communicator* shard_group(int ranks) const;
  void add(Unit& unit) {
    units_.push_back(&unit);
    units_changed();
  }
  void remove(Unit& unit);

  bool gradient_sync() const { return gradient_sync_; }
  void set_gradient_sync(bool sync) { gradient_sync_ = sync; }

  /// Records the run. Returns the units to gather next.
  std::vector<Unit*> enter_forward(Unit& unit);
  /// `recorded` says that a backward will come for this run.
  void leave_forward(Unit& unit, bool recorded);
  /// Adds `unit` to the current backward; the end of that backward leaves all added units. Returns the units to gather
  /// next. Throws c10::Error when a backward of this step has failed.
  std::vector<Unit*> enter_backward(Unit& unit);

  /// Lets `unit` start a reduction. Finishes the previous reduction first, so that at most one unit holds reduction
  /// buffers. With replicas the sum over them begins, and the reduction before that is finished.
  void admit_reduction(Unit& unit);
  /// Waits until no reduction is under way.
  void finish_reductions();
  /// Gives back the memory that tight units and their reductions do not need now.
  void trim();

  /// Before a backward: looks at what the user has done to gradients; see Unit::follow_gradients(). Does nothing while
  /// a backward is under way.
  void follow_gradients();
  /// Before what needs whole gradients, such as a step. Throws c10::Error where some are not reduced, or were replaced.
  /// `what` is the call that needs them.
  void check_gradients(const char* what);
  /// Notices a backward that has failed although its object still lives, as on the threads of a GPU.
  void settle();
  /// Throws c10::Error when a backward has failed since start_over(): the gradients are incomplete then. `what` is the
  /// call that needs them.
  void check_whole(const char* what) const;
  Participation& participation() { return participation_; }

  /// The sizes of units' buffers have changed.
  void units_changed() { sized_ = false; }
  /// Reserves the memory of the pools for units that come and go, once after each change of the units. Call it before
  /// taking a buffer. See [Note: how large the pools are].
  void size_pools();

  /// Buffers of units that come and go. Units that stay gathered from forward to backward have pools of their own.
  const std::shared_ptr<BufferPool>& gathered_pool() const { return gathered_; }
  const std::shared_ptr<BufferPool>& gradient_pool() const { return gradients_; }
  const std::shared_ptr<BufferPool>& scratch_pool() const { return scratch_; }
  /// Parts of gathered parameters that units keep from forward to backward.
  const std::shared_ptr<BufferPool>& part_pool() const { return parts_; }
  /// Codes that units with quantised segments gather, until values are made of it: see [Note: quantised segments].
  const std::shared_ptr<BufferPool>& staged_pool() const { return staged_; }
  GatherStream& gather_stream() { return gather_stream_; }
  /// Gives up the step: gathers, reductions, gradients and the recorded order.
  void abandon_step();
  /// A step begins: the gradients are gone.
  void start_over() { failed_ = false; }

  void count_gathered(std::int64_t bytes);
  void count_unreduced(std::int64_t bytes);
  std::int64_t gathered_bytes_peak() const { return gathered_peak_; }
  std::int64_t unreduced_bytes_peak() const { return unreduced_peak_; }

  /// Lives while a unit runs. Its destructor keeps depths right, and gives up gathered parameters when forward throws.
  class Run {
   public:
    Run(Schedule& schedule, Unit& unit);
    ~Run();
    Run(const Run&) = delete;
    Run& operator=(const Run&) = delete;
    void done() { done_ = true; }

   private:
    Schedule& schedule_;
    Unit& unit_;
    bool done_ = false;
  };

 private:
  friend class Backward;
  void end_backward();
  void exchange_participation();
  void abandon_backward();
  void abandon_forward();
  /// Units in the order in which they run or ran, and the place that this iteration has reached.
  struct Order {
    std::vector<Unit*> units;
    std::size_t reached = 0;
    /// Goes to the next run of `unit`, and returns the units of the `depth` runs after it.
    std::vector<Unit*> following(const Unit& unit, int depth);
  };
  void gather_only(const Unit& unit, const std::vector<Unit*>& next);
  /// The most bytes that a unit takes while it runs, with those of the units that are gathered ahead of it. Null: the
  /// unit that runs takes none.
  static std::int64_t longest_row(const std::vector<const Unit*>& units, std::int64_t (Unit::*running)() const,
                                  std::int64_t (Unit::*gathered_ahead)() const);

  DeviceMesh::Shared ranks_;
  Participation participation_;
  std::shared_ptr<BufferPool> gathered_, gradients_, scratch_, parts_, staged_;
  std::map<int, std::shared_ptr<Communicator>> shard_groups_;  // by size
  GatherStream gather_stream_;
  std::vector<Unit*> units_;
  bool gradient_sync_ = true;

  int depth_ = 0;
  bool sized_ = false;
  // Each unit once, but for those that reduce each run.
  Order order_;                   // forward order of the last iteration
  std::vector<Unit*> recording_;  // forward order of this iteration
  std::vector<Unit*> ended_;      // units in the order their forwards ended in this iteration
  std::vector<Unit*> ahead_;      // units that were to be gathered ahead last
  Order backward_order_;
  std::vector<Unit*> entered_;  // units that the current backward has reached
  std::weak_ptr<Backward> backward_;
  bool failed_ = false;

  Unit* reducing_ = nullptr;
  Unit* adding_replicas_ = nullptr;  // reduced before it
  std::int64_t gathered_now_ = 0;
  std::int64_t gathered_peak_ = 0;
  std::int64_t unreduced_now_ = 0;
  std::int64_t unreduced_peak_ = 0;
};

}  // namespace fsdp
