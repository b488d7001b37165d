#pragma once
#include <ATen/core/Tensor.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace fsdp {

namespace watch {
class Watcher;
}
class Tracer;

/// A collective that has been started. Its tensors must stay alive and untouched until wait() has returned.
class Pending {
 public:
  virtual ~Pending() = default;
  /// Blocks until the result is in its tensor. On CUDA the host does not block: later work of the current stream sees
  /// the result. Throws c10::Error naming the collective and the rank when a peer died or the mesh's timeout passed.
  /// Call wait() exactly once.
  virtual void wait() = 0;
};

/// A collective that had nothing to move.
class Done : public Pending {
 public:
  void wait() override {}
};

/// Waits for a collective, if one is under way, and drops it and its error: for a failure that is under way and tells
/// more, and that may have broken the collective.
void discard(std::unique_ptr<Pending>& pending);

/// Moves the bytes. Each backend has one implementation (sockets/, nccl/, node/).
class Transport;
class PeerMemory;

/// The connections of a transport over sockets.
struct Links {
  int connections = 0;             ///< of this rank to peers
  std::int64_t messages_sent = 0;  ///< by this rank
};

enum class Reduction { kSum, kMax };

/// Counts of what this rank has sent and waited for. Bytes are computed from the formulas of the algorithms: all-gather
/// and reduce-scatter count N-1 chunks, all-reduce 2(N-1)/N of the tensor, broadcast (N-1)/N of the tensor. Along a
/// tree, as between the hosts of a mesh, these are means over the ranks.
struct Traffic {
  std::int64_t collectives = 0;      ///< started
  std::int64_t wire_bytes = 0;       ///< of all collectives
  std::int64_t gathered_bytes = 0;   ///< of all-gathers
  std::int64_t scattered_bytes = 0;  ///< of reduce-scatters
  /// How long the calling threads stood in collectives: in Pending::wait(), and in calls that wait. That is the part of
  /// the communication that computation does not hide. On the CPU copies and sums of the received bytes count. 0 where
  /// only the device waits, as with NCCL.
  std::chrono::nanoseconds waited{0};

  Traffic& operator+=(const Traffic& other);
  Traffic operator-(const Traffic& before) const;
};

/// The collectives of one axis of a mesh. All ranks must make the same calls in the same order; otherwise they hang
/// until the mesh's watcher or the timeout ends that. With one rank no call sends or copies anything.
///
/// Not thread-safe, except traffic(), wire_bytes() and collectives().
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

  /// Starts an all-gather in place. `buffer` is contiguous [world_size * chunk]. The caller has filled this rank's
  /// part, [rank * chunk, (rank + 1) * chunk); the all-gather writes the other parts.
  /// `whose` says whose bytes these are, such as a unit's name. On the CPU ranks that call with another `whose`, kind
  /// or size at this point never exchange bytes: their calls throw, and the text names `whose`. The characters of
  /// `whose` must outlive the Pending.
  std::unique_ptr<Pending> all_gather_into(const at::Tensor& buffer, std::string_view whose = {});

  /// Copies `mine`, [chunk] of any dtype and device, into this rank's part of `buffer`, all-gathers `buffer` and waits.
  void gather(const at::Tensor& buffer, const at::Tensor& mine, std::string_view whose = {});

  /// Starts a reduce-scatter. `input` is contiguous [world_size * chunk] and stays unchanged. `output` is contiguous
  /// [chunk] of the same dtype and receives the sum over ranks of part `rank`. On the CPU the order of the sum is a
  /// tree over the ranks, see fsdp/comm/transport.h, so equal inputs give equal bits. `whose` as in all_gather_into().
  std::unique_ptr<Pending> reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                          std::string_view whose = {});

  /// Starts a sum over all ranks in place. `tensor` is contiguous. The sum of bools is true where one of them is. The
  /// order of the sum is that of reduce_scatter(). `whose` as in all_gather_into().
  std::unique_ptr<Pending> start_all_reduce(const at::Tensor& tensor, std::string_view whose = {});

  /// Reduces `tensor` in place over all ranks and waits.
  void all_reduce(at::Tensor& tensor, Reduction reduction = Reduction::kSum);
  /// Reduces one number in double precision and returns the result.
  double all_reduce(double value, Reduction reduction = Reduction::kSum);

  /// Copies `tensor` from rank `root` to every rank, in place, and waits.
  void broadcast(at::Tensor& tensor, int root = 0);
  /// Sends text or bytes from rank `root` to every rank: at most 1 GiB. The argument is read on `root` only.
  std::string broadcast(std::string bytes, int root = 0);

  /// Returns once every rank has called barrier().
  void barrier();

  /// Shares an outcome. Each rank passes its error, or an empty text for success. All ranks get the same answer: an
  /// empty text when all succeeded, otherwise "rank R: <error>" of the lowest failing rank.
  std::string agree(const std::string& error);

  /// Memory that all-gathers and reduce-scatters of this communicator send from with fewer copies; null: none.
  std::shared_ptr<PeerMemory> peer_memory() const;
  /// Gives back the memory that this communicator keeps for its next collectives. These allocate it again.
  void trim();

  /// Since construction. May be read from any thread.
  Traffic traffic() const;
  std::int64_t wire_bytes() const { return traffic().wire_bytes; }
  std::int64_t collectives() const { return traffic().collectives; }
  /// Nothing where no sockets serve. May be read from any thread.
  Links links() const;

  /// Notes the collectives that are started from now on, until false. For those that a graph of the device's work holds
  /// and repeats without a call of this class; see StepGraph.
  void note_calls(bool on);
  /// The device makes the noted collectives once more: they count in traffic(), and get their numbers for the watcher.
  /// Throws c10::Error with the watcher's verdict when the mesh has failed.
  void repeat_calls();

  /// Lets `watcher` find out why a collective does not end; see DeviceMesh::watch(), which calls it. `group` is equal
  /// on the ranks that this communicator joins; `ranks` are their numbers in the mesh, in the order of the group.
  void watch(const std::shared_ptr<watch::Watcher>& watcher, std::string group, std::vector<int> ranks);

  /// Where waits and collectives under way are recorded; see DeviceMesh::tracer().
  void record_in(std::shared_ptr<Tracer> tracer);

 private:
  struct Traced;
  class Meter;
  template <typename Start>
  std::unique_ptr<Pending> start(const char* kind, std::string_view whose, std::int64_t bytes, const Start& start);

  int rank_;
  int world_size_;
  at::Device device_;
  std::unique_ptr<Transport> transport_;
  std::shared_ptr<Meter> meter_;
};

}  // namespace fsdp
