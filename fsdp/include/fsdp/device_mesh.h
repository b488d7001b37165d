#pragma once
#include <c10/core/Device.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "fsdp/communicator.h"

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

/// Connects to rank 0's store and retries until `timeout` has passed. Throws c10::Error naming host and port.
c10::intrusive_ptr<c10d::Store> connect_store(const std::string& host, std::uint16_t port,
                                              std::chrono::milliseconds timeout = std::chrono::minutes(5));

/// The device of the rank with this number on its node. Builds with MUSTER_WITH_CUDA give GPU `local_rank` modulo the
/// number of GPUs that this process sees. All other builds, and processes that see no GPU, give the CPU.
c10::Device device_of_rank(int local_rank);

struct MeshOptions {
  /// The name of the mesh's one axis. Parameters are sharded along that axis.
  std::string axis = "shard";
  /// The CPU communicates over Gloo. CUDA communicates over NCCL, in builds with MUSTER_WITH_CUDA; the constructor
  /// makes the device the calling thread's current one.
  c10::Device device = c10::kCPU;
  /// How long a collective may wait for its peers before every rank throws.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// Gloo only: the address or name of this machine that peers connect to. Empty means loopback, which is right when
  /// all ranks run on one machine.
  std::string interface_address;
  /// Makes the keys in `store` unique. One store can then serve several meshes or attempts.
  std::string key_prefix = "mesh";
};

/// The ranks of an attempt as named axes. Each axis has its own collectives. The mesh has one axis now.
class DeviceMesh {
 public:
  /// Collective: every rank of `world_size` must construct its mesh on the same store. `store` may be null when
  /// `world_size` is 1. Throws c10::Error for a rank outside the world, for a device that this build cannot serve, and
  /// for peers that do not come within the timeout.
  /// On the CPU the constructor makes the process ignore SIGPIPE, unless the process has set its own disposition.
  /// Otherwise Gloo's write to a dead peer would end this process.
  DeviceMesh(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, const MeshOptions& options = {});

  /// A mesh of one axis over a given transport, such as a transport of a test. `transport` may be null when
  /// `world_size` is 1. Of `options` only axis and device count. Throws c10::Error for a rank outside the world.
  DeviceMesh(int rank, int world_size, std::unique_ptr<Transport> transport, const MeshOptions& options = {});

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  c10::Device device() const { return options_.device; }

  /// The axis that parameters are sharded along.
  Communicator& shard() { return *axes_.front().communicator; }
  const Communicator& shard() const { return *axes_.front().communicator; }
  /// shard() for those that may outlive the mesh.
  const std::shared_ptr<Communicator>& shared_shard() const { return axes_.front().communicator; }
  /// The axis with that name. Throws c10::Error listing the existing names.
  Communicator& axis(std::string_view name);

  /// Bytes that this rank has sent over all axes. May be read from any thread.
  std::int64_t wire_bytes() const;

 private:
  struct Axis {
    std::string name;
    std::shared_ptr<Communicator> communicator;
  };

  void check_rank() const;
  void add_axis(std::unique_ptr<Transport> transport);

  int rank_;
  int world_size_;
  MeshOptions options_;
  std::vector<Axis> axes_;
};

}  // namespace fsdp
