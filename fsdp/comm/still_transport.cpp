#include "fsdp/comm/still_transport.h"

#include <vector>

#include "fsdp/comm/buffer_pool.h"
#include "fsdp/comm/transport.h"

namespace fsdp {
namespace {

/// A collective that has ended before it began. It holds its buffers until it is waited for.
class Ended : public Pending {
 public:
  explicit Ended(std::vector<at::Tensor> buffers = {}) : buffers_(std::move(buffers)) {}
  void wait() override { buffers_.clear(); }

 private:
  std::vector<at::Tensor> buffers_;
};

class StillTransport : public Transport {
 public:
  StillTransport(int rank, int world_size, StillBuffers buffers)
      : rank_(rank), world_size_(world_size), buffers_(buffers) {}

  std::unique_ptr<Pending> all_gather_into(const at::Tensor&, std::string_view) override {
    return std::make_unique<Ended>();
  }
  std::unique_ptr<Pending> reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                          std::string_view) override {
    output.copy_(input.narrow(0, 0, output.numel()));
    const bool receives = buffers_ == StillBuffers::kSockets;
    return std::make_unique<Ended>(take(receives ? world_size_ - 1 : 0, output.numel(), output));
  }
  std::unique_ptr<Pending> start_all_reduce(const at::Tensor& tensor, std::string_view) override {
    const std::int64_t all = tensor.numel();
    if (buffers_ == StillBuffers::kNone) return std::make_unique<Ended>();
    if (buffers_ == StillBuffers::kSharedMemory) return std::make_unique<Ended>(take(1, all, tensor));
    const bool whole = world_size_ == 2 || static_cast<std::int64_t>(tensor.nbytes()) <= kSentWhole;
    const std::int64_t share = whole ? all : all * (rank_ + 1) / world_size_ - all * rank_ / world_size_;
    return std::make_unique<Ended>(take(world_size_ - 1, share, tensor));
  }
  void all_reduce(at::Tensor& tensor, Reduction reduction) override {
    if (reduction == Reduction::kSum) start_all_reduce(tensor.view({-1}), {})->wait();
  }
  void broadcast(at::Tensor&, int) override {}
  void barrier() override {}

 private:
  std::vector<at::Tensor> take(int count, std::int64_t numel, const at::Tensor& like) {
    std::vector<at::Tensor> taken;
    for (int i = 0; i < count; ++i) taken.push_back(pool_.tensor(numel, like.options()));
    return taken;
  }

  const int rank_, world_size_;
  const StillBuffers buffers_;
  BufferPool pool_{c10::kCPU};
};

}  // namespace

std::unique_ptr<Transport> make_still_transport(int rank, int world_size, StillBuffers buffers) {
  return std::make_unique<StillTransport>(rank, world_size, buffers);
}

}  // namespace fsdp
