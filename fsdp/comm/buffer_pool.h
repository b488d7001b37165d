#pragma once
#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Stream.h>

#include <cstdint>
#include <memory>

namespace fsdp {

class PeerMemory;

/// The stream of a device with streams that the calling thread's work goes into.
c10::Stream current_stream(at::Device device);

/// Parts of buffers begin on a cache line.
inline constexpr std::int64_t kCacheLine = 64;
/// `bytes`, rounded up to whole cache lines.
constexpr std::int64_t whole_cache_lines(std::int64_t bytes) {
  return (bytes + kCacheLine - 1) / kCacheLine * kCacheLine;
}

/// Memory that comes and goes with every unit, taken from regions that stay.
///
/// reserve() says how much all buffers that are in use at one time take together. They then lie in one region of that
/// size, large and small ones side by side, and the pool has no more memory than that. What finds no room there gets a
/// region of its own, which later buffers may have, too. So the pool grows to what was in use at one time and no
/// further: its size is the same in every step. Pages and addresses stay, so the kernel clears no memory after the
/// first step.
///
/// [Note: places in a region] A buffer takes the smallest gap that it fits into, at the end of the gap that is an end
/// of the region. Where two buffers are in use at one time, as with one unit gathered ahead, they are at both ends. So
/// the gap between the others is never cut in two, and the largest unit always finds its place beside the one before.
///
/// [Note: memory on a device with streams] A region remembers where in its stream each part was given back. Whoever
/// takes that part makes the own stream wait for that point. So a gather on a stream of its own waits for its memory,
/// and not for all work that was queued before it. The pool gives memory back to the allocator only after the stream
/// that the memory was allocated on waits for those points. So record_stream is not needed.
///
/// [Note: memory that peers read] Parts of a peer memory are read by other ranks until these have got what they need,
/// which may be later than the part is given back. Whoever takes the part waits for them.
///
/// Not thread-safe. A pool may be destroyed before its leases.
class BufferPool {
  struct Regions;
  struct Region;

 public:
  /// `peer_memory`: what the regions are made of; null: memory of `device`.
  explicit BufferPool(at::Device device, std::shared_ptr<PeerMemory> peer_memory = nullptr);

  /// A buffer until the last part of it is freed.
  class Lease : public std::enable_shared_from_this<Lease> {
   public:
    Lease(std::shared_ptr<Regions> regions, std::shared_ptr<Region> region, std::int64_t begin)
        : regions_(std::move(regions)), region_(std::move(region)), begin_(begin) {}
    ~Lease();
    Lease(const Lease&) = delete;
    Lease& operator=(const Lease&) = delete;

    /// The memory from byte `offset` on. It holds the lease.
    c10::DataPtr part(std::int64_t offset);

   private:
    std::shared_ptr<Regions> regions_;
    std::shared_ptr<Region> region_;
    std::int64_t begin_;
  };

  /// The bytes that all buffers take which are in use at one time. Their region is made when a buffer is taken and none
  /// is in use. 0: each buffer makes a region, until one is free that it fits into.
  void reserve(std::int64_t bytes);
  std::shared_ptr<Lease> take(std::int64_t bytes);
  /// True if take() of so many bytes makes no region beside the one that is reserved.
  bool has_room(std::int64_t bytes) const;
  /// A contiguous tensor of unknown values that holds a buffer.
  at::Tensor tensor(std::int64_t numel, const at::TensorOptions& options);

  /// Gives the memory of free regions back to the allocator. The next step allocates it again.
  void trim();

  /// With true, memory that the pool would give back stays with it: a graph of the device's work knows its address.
  /// With false that memory goes back once the device has done what the current stream has been given.
  void keep_memory(bool keeps);
  /// Lets whoever takes free memory wait for the place that the current stream has reached, as if the memory had been
  /// given back there.
  void mark_free();

  /// Bytes of all regions, in use or not, and of the memory that is kept.
  std::int64_t bytes() const;

 private:
  std::shared_ptr<Regions> regions_;
};

}  // namespace fsdp
