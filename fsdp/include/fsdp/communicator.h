#pragma once
#include <ATen/core/Tensor.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>

namespace fsdp {

/// A collective under way. The tensors it was given must stay alive and untouched until wait() returned.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Blocks until the result is in place (on CUDA: until the current stream will see it). Throws c10::Error naming the
  /// collective and the rank when a peer died or the mesh's timeout passed. Call it exactly once.
  virtual void wait() = 0;
};

/// What carries the bytes; one implementation a backend (src/gloo, src/nccl).
class Transport;

enum class Reduction { kSum, kMax };

/// The collectives of one axis of a mesh. All ranks must make the same calls in the same order, or they hang until the
/// timeout. With one rank nothing is sent and nothing copied.
///
/// Not thread-safe, except wire_bytes().
class Communicator {
 public:
  /// `transport` is null for world size 1.
  Communicator(int rank, int world_size, at::Device device, std::unique_ptr<Transport> transport);
  ~Communicator();
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  at::Device device() const { return device_; }

  /// Starts an all-gather in place. `buffer`: contiguous [world_size * chunk]; this rank's own part
  /// [rank * chunk, (rank + 1) * chunk) is filled already, the other parts are written.
  std::unique_ptr<Pending> all_gather_into(const at::Tensor& buffer);

  /// Starts a reduce-scatter. `input`: contiguous [world_size * chunk], not changed; `output`: contiguous [chunk], same
  /// dtype, receives the sum over ranks of part `rank`. The sum's order is fixed, so equal inputs give equal bits.
  std::unique_ptr<Pending> reduce_scatter(const at::Tensor& input, const at::Tensor& output);

  /// Reduces `tensor` in place over all ranks and waits.
  void all_reduce(at::Tensor& tensor, Reduction reduction = Reduction::kSum);
  /// The same for one number, in double precision.
  double all_reduce(double value, Reduction reduction = Reduction::kSum);

  /// Copies `tensor` of rank `root` to every rank, in place, and waits.
  void broadcast(at::Tensor& tensor, int root = 0);
  /// The same for text or bytes of any length up to 1 GiB; the argument matters on `root` only.
  std::string broadcast(std::string bytes, int root = 0);

  /// Returns once every rank has come here.
  void barrier();

  /// Shares an outcome: each rank gives its error, empty for success, and all get the same answer: empty when all
  /// succeeded, else "rank R: <the error>" of the lowest failing rank.
  std::string agree(const std::string& error);

  /// Bytes this rank has sent since construction. The formulas of the algorithms, added up over actual calls:
  /// all-gather and reduce-scatter (N-1) chunks, all-reduce 2(N-1)/N of the tensor, broadcast (N-1)/N of it.
  /// May be read from any thread.
  std::int64_t wire_bytes() const { return wire_bytes_.load(std::memory_order_relaxed); }
  /// Collectives started since construction. May be read from any thread.
  std::int64_t collectives() const { return collectives_.load(std::memory_order_relaxed); }

 private:
  void count(std::int64_t bytes);

  int rank_;
  int world_size_;
  at::Device device_;
  std::unique_ptr<Transport> transport_;
  std::atomic<std::int64_t> wire_bytes_{0};
  std::atomic<std::int64_t> collectives_{0};
};

}  // namespace fsdp
