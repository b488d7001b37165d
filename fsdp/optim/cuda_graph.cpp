#include <ATen/cuda/CUDAGraph.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAGuard.h>
#include <c10/util/Exception.h>

#include <exception>

#include "fsdp/optim/step_graph.h"

namespace fsdp {
namespace {

/// A graph of LibTorch's. LibTorch makes the device's default generator belong to it, so that a replay draws from where
/// the generator is.
///
/// The capture is "thread-local": only this thread is told of calls that cannot be recorded. c10d's watchdog asks for
/// events on a thread of its own, and autograd allocates on another one.
class CudaGraph : public DeviceGraph {
 public:
  explicit CudaGraph(c10::Device device) : device_(device) {}
  ~CudaGraph() override {
    if (!begun_) return;
    try {
      graph_.capture_end();
    } catch (const std::exception&) {
      // The stream is free again, which is all that is wanted.
    }
  }

  void begin() override {
    // Memory that the warm-up has freed goes back to the driver. The graph takes memory of its own.
    c10::cuda::CUDACachingAllocator::emptyCache();
    graph_.capture_begin(pool_, cudaStreamCaptureModeThreadLocal);
    begun_ = true;
  }

  void end() override {
    begun_ = false;
    graph_.capture_end();
    bytes_ = 0;
    const auto snapshot = c10::cuda::CUDACachingAllocator::snapshot(pool_, /*include_traces=*/false);
    for (const auto& segment : snapshot.segments)
      if (segment.device == device_.index() && segment.owner_private_pool_id == pool_)
        bytes_ += static_cast<std::int64_t>(segment.total_size);
  }

  void replay() override { graph_.replay(); }
  std::int64_t bytes() const override { return bytes_; }

 private:
  const c10::Device device_;
  const at::cuda::MempoolId_t pool_ = at::cuda::graph_pool_handle();
  at::cuda::CUDAGraph graph_;
  bool begun_ = false;
  std::int64_t bytes_ = 0;
};

}  // namespace

std::unique_ptr<DeviceGraph> make_device_graph(c10::Device device) {
  TORCH_CHECK(device.is_cuda(), "step graph: no graphs for device ", device, "; call the step itself");
  const c10::cuda::CUDAGuard guard(device);
  return std::make_unique<CudaGraph>(device);
}

}  // namespace fsdp
