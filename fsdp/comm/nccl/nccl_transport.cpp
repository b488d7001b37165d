#include <ATen/cuda/CUDAContext.h>
#include <ATen/ops/zeros.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/cuda/CUDAStream.h>
#include <c10/util/Exception.h>

#include <cstdio>
#include <cstring>
#include <torch/csrc/distributed/c10d/NCCLUtils.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupNCCL.hpp>
#include <vector>

#include "fsdp/comm/bounded.h"
#include "fsdp/comm/nccl/nccl_settings.h"
#include "fsdp/comm/transport.h"

namespace fsdp {
namespace {

using WorkPtr = c10::intrusive_ptr<c10d::Work>;

void wait_for(const WorkPtr& work, const char* what, int rank) {
  try {
    work->wait();
  } catch (const std::exception& error) {
    TORCH_CHECK(false, what, " on rank ", rank, " failed (did a rank die?): ", error.what());
  }
}

// [Note: streams] NCCL runs on c10d's own stream. A collective starts by waiting for the current stream. wait() makes
// the current stream wait for the collective; the host does not wait. Buffers are allocated, used and freed on the
// current stream only. So the caching allocator reuses them in the right order, and record_stream is never needed.
std::unique_ptr<Pending> pending(WorkPtr work, const char* what, int rank) {
  return make_pending([work = std::move(work), what, rank] { wait_for(work, what, rank); });
}

class NcclTransport : public Transport {
 public:
  NcclTransport(const c10::intrusive_ptr<c10d::Store>& store, const TransportOptions& options)
      : rank_(options.rank), world_size_(options.world_size), device_(options.device) {
    nccl::set_where_unset(nccl::settings(options.timeout));
    auto nccl = c10d::ProcessGroupNCCL::Options::create();
    nccl->timeout = options.timeout;
    nccl->is_high_priority_stream = true;
    group_ = c10::make_intrusive<c10d::ProcessGroupNCCL>(store, rank_, world_size_, nccl);
  }

  ~NcclTransport() override {
    // With a dead peer a shutdown may throw late or never. Then the communicator ends with the process.
    bounded(nccl::kShutdownLimit, "shutdown", [](c10d::ProcessGroupNCCL& group) { group.shutdown(); });
  }

  void connect() override { group_->eagerConnectSingleDevice(device_); }

  /// NCCL makes some of its connections in the first collective.
  void warm_up() override {
    std::vector<at::Tensor> tensors{at::zeros({1}, at::TensorOptions(at::kFloat).device(device_))};
    wait_for(group_->allreduce(tensors), "first all-reduce", rank_);
    c10::cuda::getCurrentCUDAStream(device_.index()).synchronize();
  }

  std::unique_ptr<Pending> all_gather_into(const at::Tensor& buffer, std::string_view /*whose*/) override {
    const std::int64_t chunk = buffer.numel() / world_size_;
    at::Tensor output = buffer, own = buffer.narrow(0, rank_ * chunk, chunk);
    return pending(group_->_allgather_base(output, own), "all-gather", rank_);
  }

  std::unique_ptr<Pending> reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                          std::string_view /*whose*/) override {
    at::Tensor in = input, out = output;
    return pending(group_->_reduce_scatter_base(out, in), "reduce-scatter", rank_);
  }

  std::unique_ptr<Pending> start_all_reduce(const at::Tensor& tensor, std::string_view /*whose*/) override {
    std::vector<at::Tensor> tensors{tensor};
    return pending(group_->allreduce(tensors), "all-reduce", rank_);
  }

  void all_reduce(at::Tensor& tensor, Reduction reduction) override {
    c10d::AllreduceOptions options;
    options.reduceOp = reduction == Reduction::kMax ? c10d::ReduceOp::MAX : c10d::ReduceOp::SUM;
    std::vector<at::Tensor> tensors{tensor};
    wait_for(group_->allreduce(tensors, options), "all-reduce", rank_);
  }

  void broadcast(at::Tensor& tensor, int root) override {
    c10d::BroadcastOptions options;
    options.rootRank = root;
    std::vector<at::Tensor> tensors{tensor};
    wait_for(group_->broadcast(tensors, options), "broadcast", rank_);
  }

  void barrier() override {
    c10d::BarrierOptions options;  // without a device c10d guesses one by the rank's number
    options.device = device_;
    options.device_ids = {device_.index()};
    wait_for(group_->barrier(options), "barrier", rank_);
  }

  // The device leaves its collectives with unknown values. No later call of the mesh's communicators succeeds, so the
  // values reach neither weights nor a checkpoint.
  void abort(const std::string& /*why*/) override {
    bounded(nccl::kAbortLimit, "abort", [](c10d::ProcessGroupNCCL& group) { group.abort(); });
  }
  bool host_waits() const override { return false; }

 private:
  /// The thread keeps the group, because it may never end.
  template <typename Work>
  void bounded(std::chrono::seconds limit, const char* what, const Work& work) {
    try {
      const auto on_device = [group = group_, device = device_, work] {
        const c10::cuda::CUDAGuard guard(device);
        work(*group);
      };
      if (!run_for_at_most(limit, on_device))
        std::fprintf(stderr,
                     "[rank %d] NCCL: the %s of a communicator has not ended after %lld s; going on without it\n",
                     rank_, what, static_cast<long long>(limit.count()));
    } catch (const std::exception&) {
      // A peer is gone. The communicator ends with the process.
    }
  }

  const int rank_, world_size_;
  const c10::Device device_;
  c10::intrusive_ptr<c10d::ProcessGroupNCCL> group_;
};

}  // namespace

std::unique_ptr<Transport> make_nccl_transport(const c10::intrusive_ptr<c10d::Store>& store,
                                               const TransportOptions& options) {
  return std::make_unique<NcclTransport>(store, options);
}

int nccl_version() {
  return c10d::getNcclVersionNumber();
}

std::array<std::uint8_t, 16> gpu_identity(c10::Device device) {
  const cudaDeviceProp* properties = at::cuda::getDeviceProperties(device.index());
  std::array<std::uint8_t, 16> out{};
  static_assert(sizeof properties->uuid == sizeof out);
  std::memcpy(out.data(), &properties->uuid, sizeof out);
  return out;
}

}  // namespace fsdp
