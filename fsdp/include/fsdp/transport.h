#pragma once
#include <ATen/core/Tensor.h>
#include <c10/util/intrusive_ptr.h>

#include <chrono>
#include <memory>
#include <string>
#include <string_view>

#include "fsdp/communicator.h"

namespace c10d {
class Store;
}

namespace fsdp {

/// The collectives of one backend, for two ranks or more. Shapes and failures are those of Communicator.
class Transport {
 public:
  virtual ~Transport() = default;
  virtual std::unique_ptr<Pending> all_gather_into(const at::Tensor& buffer, std::string_view whose) = 0;
  virtual std::unique_ptr<Pending> reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                                  std::string_view whose) = 0;
  virtual std::unique_ptr<Pending> start_all_reduce(const at::Tensor& tensor, std::string_view whose) = 0;
  virtual void all_reduce(at::Tensor& tensor, Reduction reduction) = 0;
  virtual void broadcast(at::Tensor& tensor, int root) = 0;
  virtual void barrier() = 0;
};

struct TransportOptions {
  int rank = 0;
  int world_size = 1;
  std::chrono::milliseconds timeout{};
  std::string interface_address;
};

std::unique_ptr<Transport> make_gloo_transport(const c10::intrusive_ptr<c10d::Store>& store,
                                               const TransportOptions& options);
/// Carries tensors of any device over `inner`, whose collectives are on the CPU, through copies on the host. A start
/// waits until the device has computed what is sent. `rank` and `world_size` are those of `inner`.
std::unique_ptr<Transport> make_staged_transport(std::unique_ptr<Transport> inner, int rank, int world_size);
/// Only in builds with MUSTER_WITH_CUDA. The destructor shuts the communicator down.
std::unique_ptr<Transport> make_nccl_transport(const c10::intrusive_ptr<c10d::Store>& store,
                                               const TransportOptions& options);

}  // namespace fsdp
