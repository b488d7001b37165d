#pragma once
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <atomic>
#include <chrono>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "fsdp/comm/communicator.h"
#include "fsdp/tracing/trace.h"

namespace c10d {
class Store;
}

namespace fsdp {

/// A rendezvous store that this process serves, and the port that the store listens on.
struct ListeningStore {
  c10::intrusive_ptr<c10d::Store> store;
  std::uint16_t port = 0;
};

/// Serves a TCPStore on rank 0. The store listens on `host` only, a name or address of this machine. Port 0 takes any
/// free port. The port is bound before the function returns, so no other process can take it. The store is served as
/// long as the pointer lives. `timeout` bounds each later wait for a key. Throws c10::Error naming host and port.
ListeningStore listen_store(const std::string& host, std::uint16_t port = 0,
                            std::chrono::milliseconds timeout = std::chrono::minutes(5));

/// Hears, on another thread, who is waited for.
using OnLate = std::function<void(const std::string& text)>;

/// Connects to rank 0's store and retries until `timeout` has passed. Meanwhile `on_late` hears that rank 0 has not
/// come, after `late_after` and again after twice the time; null: nobody does. Throws c10::Error naming host and port.
c10::intrusive_ptr<c10d::Store> connect_store(const std::string& host, std::uint16_t port,
                                              std::chrono::milliseconds timeout = std::chrono::minutes(5),
                                              const OnLate& on_late = {},
                                              std::chrono::milliseconds late_after = std::chrono::seconds(10));

/// The device of the rank with this number on its node. Builds with MUSTER_WITH_CUDA give GPU `local_rank` modulo the
/// number of GPUs that this process sees. All other builds, and processes that see no GPU, give the CPU.
c10::Device device_of_rank(int local_rank);

/// One axis of a mesh.
struct MeshAxis {
  std::string name;
  int size = 1;
};

struct MeshOptions {
  /// The axes, the slowest first: with {{"replicate", 2}, {"shard", 4}} ranks 0 to 3 are the first group of "shard",
  /// and ranks 0 and 4 are the first group of "replicate". The sizes multiply to the number of ranks. Parameters are
  /// sharded along "shard" and equal along "replicate"; other names carry what their users give them. Empty: the one
  /// axis "shard" of all ranks. A mesh without "shard" has it with size 1.
  std::vector<MeshAxis> axes;
  /// The CPU communicates over shared memory or over sockets. CUDA communicates over NCCL, in builds with
  /// MUSTER_WITH_CUDA; the constructor makes the device the calling thread's current one. Where ranks share a GPU, all
  /// of them communicate over sockets through the host, because NCCL wants a GPU a rank.
  c10::Device device = c10::kCPU;
  /// How long a collective may wait for its peers before every rank throws.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// Sockets only: the address or name of this machine that peers connect to. Empty means loopback, which is right when
  /// all ranks run on one machine.
  std::string interface_address;
  /// Groups of CPU ranks that all run on one node as one user communicate over shared memory. Other groups use sockets,
  /// and false makes all groups use it. All ranks must have the same value.
  bool shared_memory = true;
  /// Gives the reductions of gradients along "shard" a communicator of their own, so that a gather does not queue
  /// behind a reduction. Unset: with NCCL only, which runs the collectives of a communicator one after the other, and
  /// there only where it keeps the order of launches; see [Note: order of launches] in fsdp/comm/nccl/nccl_settings.h.
  /// See reduce().
  std::optional<bool> separate_reductions = std::nullopt;
  /// Makes the keys in `store` unique. One store can then serve several meshes or attempts.
  std::string key_prefix = "mesh";
  /// How long a collective may stand before this rank asks the others what they call; see [Note: watcher] in
  /// fsdp/comm/watch/watcher.h. 0: nobody watches, and only the timeout ends a collective that cannot end.
  std::chrono::milliseconds watch_patience{500};
  /// Hears, on another thread, of ranks that others have waited for since `late_after`, in a collective or where the
  /// ranks meet. That is no error. Null: the text goes to standard error.
  OnLate on_late;
  std::chrono::milliseconds late_after = std::chrono::seconds(10);
};

/// The ranks that one communicator joins.
struct MeshGroup {
  // "control" for all ranks of the mesh; "reduce" for those of "shard", for reductions alone; "post_forward_N" for N
  // neighbours of a group of "shard"
  std::string axis;
  int number = 0;  // of the group among those of its axis; of "control" 0 for control(), later ones for make_control()
  int rank = 0;    // in the group
  int size = 1;
};

/// Makes the transport of one group of two ranks or more, or null for "control" and "reduce": then the mesh's only axis
/// serves, or "shard".
using MakeTransport = std::function<std::unique_ptr<Transport>(const MeshGroup& group)>;

/// The ranks of an attempt as named axes. Each group of ranks along an axis has its own collectives. Besides, control()
/// joins all ranks, on the CPU.
class DeviceMesh {
 public:
  /// Collective: every rank of `world_size` must construct its mesh on the same store. All communicators come up here,
  /// at one time, so the first step waits for none. `store` may be null when `world_size` is 1. Throws c10::Error for a
  /// rank outside the world, for a device that this build cannot serve, for peers that do not come within the timeout,
  /// and, unless watch_patience is 0, at once for one whose process ends before all have met. on_late hears meanwhile
  /// which ranks have not come.
  DeviceMesh(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, const MeshOptions& options = {});

  /// A mesh over given transports, such as those of a test. `make` is called for each axis in their order, then for
  /// "reduce" if options.separate_reductions is true, and last for "control". shard_group() calls it later. Then
  /// Transport::connect() of all runs at one time. Of `options` only axes, device, separate_reductions and timeout
  /// count. Throws c10::Error for a rank outside the world, for axes that do not multiply to it, and for transports
  /// that are not connected within the timeout.
  DeviceMesh(int rank, int world_size, const MakeTransport& make, const MeshOptions& options = {});

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  c10::Device device() const { return options_.device; }
  /// Two ranks have the same GPU, so collectives go through the host, which is slow.
  bool shares_gpus() const { return shares_gpus_; }

  /// The axis that parameters are sharded along.
  Communicator& shard() { return *shard_; }
  const Communicator& shard() const { return *shard_; }
  /// The ranks of shard(), for reductions of gradients: see MeshOptions::separate_reductions. It may be shard() itself.
  Communicator& reduce() { return *reduce_; }
  /// This rank and its neighbours in shard(): ranks 0 to `ranks` - 1, or the next `ranks`, and so on. For
  /// ShardOptions::reshard_to_ranks. The first call with a number makes the communicator and is collective. Throws
  /// c10::Error unless `ranks` divides the ranks of shard() and is neither 1 nor all of them.
  std::shared_ptr<Communicator> shard_group(int ranks);
  /// The axis along which parameters are equal; null: parameters have one owner each.
  Communicator* replicate() { return replicate_.get(); }
  /// All ranks, always over the CPU: for numbers, texts and outcomes that hosts agree on. Its collectives wait for no
  /// device.
  Communicator& control() { return *control_; }
  /// A further communicator of all ranks over the CPU, for another thread: a communicator serves one thread at a time.
  /// Collective, on the thread that uses control(). Throws c10::Error where the mesh's transports cannot make one. Its
  /// bytes are not in traffic().
  std::unique_ptr<Communicator> make_control();
  /// Watches the mesh's collectives, as the constructor with a store does. For a mesh over given transports.
  /// Collective; `store` has keys for this mesh alone. Of the options watch_patience, on_late, late_after, timeout and
  /// interface_address. Throws c10::Error for ranks that do not come within the timeout.
  void watch(const c10::intrusive_ptr<c10d::Store>& store);
  /// Records what this rank does, on request: collectives and waits of all axes and control(), and the forward and
  /// backward of units. Never null.
  const std::shared_ptr<Tracer>& tracer() const { return tracer_; }
  /// For those that may outlive the mesh. `replicate` may be null.
  struct Shared {
    std::shared_ptr<Communicator> shard, reduce, replicate, control;
    std::shared_ptr<Tracer> tracer;
  };
  Shared shared() const { return {shard_, reduce_, replicate_, control_, tracer_}; }
  /// The axis with that name. Throws c10::Error listing the existing names.
  Communicator& axis(std::string_view name);

  /// Counts of what this rank has sent and waited for over all axes, their groups, reduce() and control(). May be read
  /// from any thread.
  Traffic traffic() const;
  std::int64_t wire_bytes() const { return traffic().wire_bytes; }

  /// Communicator::note_calls() and repeat_calls() of the device's communicators: all axes, their groups and reduce().
  /// Those of control() run on the host, so no graph holds them.
  void note_calls(bool on);
  void repeat_calls();

 private:
  struct Axis {
    std::string name;
    std::shared_ptr<Communicator> communicator;
  };

  void check() const;
  void connect();
  std::vector<std::unique_ptr<Transport>> come_up(const std::vector<MeshGroup>& groups) const;
  void make_watcher(c10d::Store& store);
  void watch_groups() const;
  std::vector<Communicator*> of_device() const;
  std::vector<int> ranks_along(const Communicator& axis) const;
  void watch_group(Communicator& group, const std::string& name, std::vector<int> ranks) const;
  void watch_shard_group(Communicator& group) const;
  void watch_control(Communicator& control, int number) const;

  int rank_;
  int world_size_;
  MeshOptions options_;
  bool shares_gpus_ = false;
  MakeTransport make_;
  // Where the ranks of a group meet, in a mesh with a store, and what ends their waits there.
  std::function<c10::intrusive_ptr<c10d::Store>(const MeshGroup&)> keys_of_;
  std::shared_ptr<std::atomic<bool>> given_up_ = std::make_shared<std::atomic<bool>>(false);
  int controls_ = 0;  // groups of "control" made so far
  std::shared_ptr<watch::Watcher> watcher_;
  std::shared_ptr<Tracer> tracer_ = std::make_shared<Tracer>();
  std::vector<Axis> axes_;
  int shard_number_ = 0;  // of this rank's group of "shard"
  std::shared_ptr<Communicator> shard_, reduce_, replicate_, control_;
  mutable std::mutex mutex_;                                   // of shard_groups_
  std::map<int, std::shared_ptr<Communicator>> shard_groups_;  // by size
};

}  // namespace fsdp
