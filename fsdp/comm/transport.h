#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "fsdp/comm/communicator.h"

namespace c10d {
class Store;
}

namespace fsdp {

/// Memory of this rank that peers read in place, so that a collective of it copies less. Not thread-safe.
class PeerMemory {
 public:
  virtual ~PeerMemory() = default;
  /// kByte [bytes] of unknown values, on a page's border. What all-gathers and reduce-scatters send from here must stay
  /// untouched after their wait() too, until await_readers() has returned.
  virtual at::Tensor allocate(std::int64_t bytes) = 0;
  /// Returns once no peer reads `memory`, which is of allocate(), whole or a part. Throws c10::Error naming the peer
  /// after the mesh's timeout.
  virtual void await_readers(const at::Tensor& memory) = 0;
};

/// The collectives of one backend, for two ranks or more. Shapes and failures are those of Communicator.
class Transport {
 public:
  virtual ~Transport() = default;
  /// Brings up what the first collective would otherwise wait for. Collective. A mesh calls it once, before all other
  /// calls, on a thread for each of its communicators. Throws c10::Error.
  virtual void connect() {}
  /// A first collective of transports whose hosts don't wait. Collective. A mesh calls it after connect(), one
  /// transport after the other in the order of its axes, because devices must begin collectives in one order.
  virtual void warm_up() {}
  virtual std::unique_ptr<Pending> all_gather_into(const at::Tensor& buffer, std::string_view whose) = 0;
  virtual std::unique_ptr<Pending> reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                                  std::string_view whose) = 0;
  virtual std::unique_ptr<Pending> start_all_reduce(const at::Tensor& tensor, std::string_view whose) = 0;
  virtual void all_reduce(at::Tensor& tensor, Reduction reduction) = 0;
  virtual void broadcast(at::Tensor& tensor, int root) = 0;
  virtual void barrier() = 0;
  /// Ends all collectives under way, and all later ones, with an error that says why. Called from another thread than
  /// the others, at any time but during construction and destruction.
  virtual void abort(const std::string& /*why*/) {}
  /// True if the host itself waits for a collective, in wait() or in the call. False: only the device does.
  virtual bool host_waits() const { return true; }
  /// Null: this backend gains nothing from memory of its own. May outlive the transport.
  virtual std::shared_ptr<PeerMemory> peer_memory() { return nullptr; }
  /// Gives back memory that no collective needs now.
  virtual void trim() {}
  /// Nothing but for transports over sockets. May be called from any thread.
  virtual Links links() const { return {}; }
};

struct TransportOptions {
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{};
  std::string interface_address;
  /// Asked a few times a second while the constructor waits for peers. Throws where one cannot come any more. Null:
  /// only the timeout ends such a wait.
  std::function<void()> check_peers = {};
  c10::Device device = c10::kCPU;
};

/// For CPU ranks on any nodes: a connection between every two ranks, over which they exchange their parts. Collective.
/// Throws c10::Error for ranks that do not come within the timeout.
std::unique_ptr<Transport> make_socket_transport(const c10::intrusive_ptr<c10d::Store>& store,
                                                 const TransportOptions& options);
/// For what all hosts agree on: small collectives of many CPU ranks, along a tree; see [Note: tree of ranks] in
/// fsdp/comm/sockets/rank_tree.h. A collective sends at most 2 (N-1) messages in all, and a rank has at most log2(N)
/// connections, rounded up. The price: up to 2 log2(N) - 1 messages follow one another, and each rank gets an
/// all-gather as a whole. A rank passes its collectives on one after the other, in the order of their starts.
/// Collective. Throws c10::Error for ranks that do not come within the timeout.
std::unique_ptr<Transport> make_tree_transport(const c10::intrusive_ptr<c10d::Store>& store,
                                               const TransportOptions& options);
/// For CPU ranks of one node. Collective. Returns null on all ranks when one of them runs on another node or as another
/// user, or cannot open its peers' memory. Throws c10::Error for ranks that do not come within the timeout.
std::unique_ptr<Transport> make_shared_memory_transport(const c10::intrusive_ptr<c10d::Store>& store,
                                                        const TransportOptions& options);
/// Carries tensors of any device over `inner`, whose collectives are on the CPU, through copies on the host. A start
/// waits until the device has computed what is sent. `rank` and `world_size` are those of `inner`.
std::unique_ptr<Transport> make_staged_transport(std::unique_ptr<Transport> inner, int rank, int world_size);
/// Only in builds with MUSTER_WITH_CUDA. The destructor shuts the communicator down.
std::unique_ptr<Transport> make_nccl_transport(const c10::intrusive_ptr<c10d::Store>& store,
                                               const TransportOptions& options);
/// NCCL's version, such as 22809 for 2.28.9. Only in builds with MUSTER_WITH_CUDA.
int nccl_version();
/// Bytes that tell a GPU from every other GPU of the world: CUDA's UUID, whatever number the GPU has in this process.
/// Only in builds with MUSTER_WITH_CUDA.
std::array<std::uint8_t, 16> gpu_identity(c10::Device device);

/// Whose buffers a still transport has, for those who measure memory.
enum class StillBuffers {
  kNone,          ///< as NCCL, whose own buffers are no tensors
  kSharedMemory,  ///< an all-reduce shows its peers a copy of the tensor
  kSockets        ///< reductions receive the parts of their peers
};

/// A transport that moves nothing: one process stands for one rank of any world, to plan or to measure. Every
/// collective ends at once. A reduce-scatter gives this rank's own first part, and all else stays as it was. `rank` and
/// `world_size` are those of the group.
///
///   fsdp::DeviceMesh mesh(rank, 4096, [](const fsdp::MeshGroup& group) {
///     return fsdp::make_still_transport(group.rank, group.size);
///   });
std::unique_ptr<Transport> make_still_transport(int rank, int world_size, StillBuffers buffers = StillBuffers::kNone);

// The parts that transports are made of.

/// A collective under way whose wait() calls `end`. What `end` holds lives as long as the collective.
template <typename End>
std::unique_ptr<Pending> make_pending(End end) {
  struct UnderWay : Pending {
    explicit UnderWay(End given) : end_(std::move(given)) {}
    void wait() override { end_(); }
    End end_;
  };
  return std::make_unique<UnderWay>(std::move(end));
}

/// All-reduces of at most so many bytes are summed by every rank, which sends all of them. Larger ones take two rounds.
inline constexpr std::int64_t kSentWhole = 16 << 10;

/// The share of `tensor`, 1-D, that `rank` sums in an all-reduce of two rounds.
at::Tensor share_of(const at::Tensor& tensor, int rank, int world_size);

/// Writes the sum of `parts` to `output`, which may be one of them. All have one shape and dtype. The sum of bools is
/// true where one of them is. The order of the
/// additions is a tree that depends on the number of parts alone: ((0 + 1) + (2 + 3)). So the bits of a sum over all
/// ranks are those of a sum over halves, quarters and so on of them, summed again. Parts with `may_change` are
/// overwritten with sums of a few of them.
void tree_sum(const std::vector<at::Tensor>& parts, const std::vector<bool>& may_change, const at::Tensor& output);

}  // namespace fsdp
