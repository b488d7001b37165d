#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Event.h>

#include <cstdint>
#include <memory>

namespace fsdp {

class PeerMemory;

/// Memory that comes and goes with every unit, taken from slots that stay.
///
/// All slots have the size of the largest buffer that was asked for, so any free slot serves any unit. The pool grows
/// to the number of buffers that were in use at one time, and no further: its size is the same in every step. Pages and
/// addresses stay, so the kernel clears no memory after the first step.
///
/// [Note: slots on a device with streams] A slot remembers where in its stream it was given back. Whoever takes it
/// makes the own stream wait for that point. So a gather on a stream of its own waits for its slot, and not for all
/// work that was queued before it. The pool gives memory back to the allocator only after the stream that the memory
/// was allocated on waits for that point. So record_stream is not needed.
///
/// [Note: slots that peers read] Slots of a peer memory are read by other ranks until these have got their part, which
/// may be later than the slot is given back. Whoever takes the slot waits for them.
///
/// Not thread-safe. A pool may be destroyed before its leases.
class BufferPool {
  struct Slots;

 public:
  /// `peer_memory`: what the slots are made of; null: memory of `device`.
  explicit BufferPool(at::Device device, std::shared_ptr<PeerMemory> peer_memory = nullptr);

  /// A slot until the last part of it is freed.
  class Lease : public std::enable_shared_from_this<Lease> {
   public:
    Lease(std::shared_ptr<Slots> slots, std::size_t slot) : slots_(std::move(slots)), slot_(slot) {}
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    /// The memory from byte `offset` on. It holds the lease.
    c10::DataPtr part(std::int64_t offset);

   private:
    std::shared_ptr<Slots> slots_;
    std::size_t slot_;
  };

  std::shared_ptr<Lease> take(std::int64_t bytes);
  /// A contiguous tensor of unknown values that holds a slot.
  at::Tensor tensor(std::int64_t numel, const at::TensorOptions& options);

  /// Gives the memory of free slots back to the allocator. The next step allocates it again.
  void trim();

  /// With true, memory that the pool would give back stays with it: a graph of the device's work knows its address.
  /// With false that memory goes back once the device has done what the current stream has been given.
  void keep_memory(bool keeps);
  /// Lets whoever takes a free slot wait for the place that the current stream has reached, as if the slots had been
  /// given back there.
  void mark_free_slots();

  /// Bytes of all slots, in use or not, and of the memory that is kept.
  std::int64_t bytes() const;

 private:
  std::shared_ptr<Slots> slots_;
};

}  // namespace fsdp
