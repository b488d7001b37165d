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

/// A rendezvous store that this process serves, and the port it really got.
struct ListeningStore {
  c10::intrusive_ptr<c10d::Store> store;
  std::uint16_t port = 0;
};

/// Serves a TCPStore on rank 0, bound to `host` (a name or address of this machine) only. Port 0 takes any free one;
/// the port is bound before this returns, so it cannot be lost to another process. Throws c10::Error naming host and
/// port. The store is served as long as the pointer lives; `timeout` bounds each later wait for a key.
ListeningStore listen_store(const std::string& host, std::uint16_t port = 0,
                            std::chrono::milliseconds timeout = std::chrono::minutes(5));

/// Connects to rank 0's store, trying again until `timeout`. Throws c10::Error naming host and port.
c10::intrusive_ptr<c10d::Store> connect_store(const std::string& host, std::uint16_t port,
                                              std::chrono::milliseconds timeout = std::chrono::minutes(5));

/// Where the rank with this number on its node computes: in builds with MUSTER_WITH_CUDA on GPU `local_rank` modulo the
/// GPUs that this process sees; on the CPU where it sees none, and in other builds.
c10::Device device_of_rank(int local_rank);

struct MeshOptions {
  /// The name of the one axis, along which parameters are sharded.
  std::string axis = "shard";
  /// CPU communicates over Gloo; CUDA over NCCL, in builds with MUSTER_WITH_CUDA, and becomes the constructing thread's
  /// current device.
  c10::Device device = c10::kCPU;
  /// How long a collective may wait for its peers before every rank throws.
  std::chrono::milliseconds timeout = std::chrono::minutes(10);
  /// Gloo only: the address or name of this machine that peers connect to. Empty means loopback, right for ranks on one
  /// machine.
  std::string interface_address;
  /// Makes the keys in `store` unique, so that one store can serve several meshes or attempts.
  std::string key_prefix = "mesh";
};

/// The ranks of an attempt as named axes, each with its collectives. There is one axis now; a second one (replicas)
/// adds a Communicator to the list and nothing to the callers of shard().
class DeviceMesh {
 public:
  /// Collective: every rank of `world_size` must construct its mesh on the same store. `store` may be null when
  /// `world_size` is 1. Throws c10::Error for a rank outside the world, a device this build cannot serve, or peers that
  /// do not come within the timeout. On the CPU SIGPIPE is ignored from here on unless the process has its own
  /// disposition for it: else Gloo's write to a rank that died would end this one, too.
  DeviceMesh(c10::intrusive_ptr<c10d::Store> store, int rank, int world_size, const MeshOptions& options = {});

  int rank() const { return rank_; }
  int world_size() const { return world_size_; }
  c10::Device device() const { return options_.device; }

  /// The axis that parameters are sharded along.
  Communicator& shard() { return *axes_.front().communicator; }
  const Communicator& shard() const { return *axes_.front().communicator; }
  /// The axis of that name; throws c10::Error listing the names there are.
  Communicator& axis(std::string_view name);

  /// Bytes sent by this rank over all axes; may be read from any thread.
  std::int64_t wire_bytes() const;

 private:
  struct Axis {
    std::string name;
    std::unique_ptr<Communicator> communicator;
  };

  int rank_;
  int world_size_;
  MeshOptions options_;
  std::vector<Axis> axes_;
};

}  // namespace fsdp
