#include "fsdp/comm/transport.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

#include "fsdp/comm/buffer_pool.h"

namespace fsdp {
namespace {

struct Summand {
  at::Tensor tensor;
  bool may_change = false;
};

/// The sum of parts [begin, end), in a part that may change.
Summand sum_of(const std::vector<at::Tensor>& parts, const std::vector<bool>& may_change, std::size_t begin,
               std::size_t end, const at::Tensor* output) {
  if (end - begin == 1) return {parts[begin], may_change[begin]};
  const std::size_t middle = begin + (end - begin + 1) / 2;
  const Summand left = sum_of(parts, may_change, begin, middle, nullptr);
  const Summand right = sum_of(parts, may_change, middle, end, nullptr);
  at::Tensor into = output != nullptr  ? *output
                    : left.may_change  ? left.tensor
                    : right.may_change ? right.tensor
                                       : at::empty_like(left.tensor);
  at::add_out(into, left.tensor, right.tensor);
  return {into, true};
}

// [Note: staging] The inner transport moves bytes of the host. A start copies what this rank sends to the host, and
// waits for that copy. A wait copies the result back in the order of the current stream, so later work of that stream
// sees it, as with NCCL. Host memory is pinned where the device is a GPU. LibTorch's host allocator keeps it until the
// copy has been made.

at::Tensor on_host(const at::Tensor& like) {
  return at::empty(like.sizes(), at::TensorOptions().dtype(like.scalar_type()).pinned_memory(like.device().is_cuda()));
}

class StagedTransport : public Transport {
 public:
  StagedTransport(std::unique_ptr<Transport> inner, int rank, int world_size)
      : inner_(std::move(inner)), rank_(rank), world_size_(world_size) {}

  std::unique_ptr<Pending> all_gather_into(const at::Tensor& buffer, std::string_view whose) override {
    const at::NoGradGuard no_grad;
    const std::int64_t chunk = buffer.numel() / world_size_;
    const at::Tensor host = on_host(buffer);
    host.narrow(0, rank_ * chunk, chunk).copy_(buffer.narrow(0, rank_ * chunk, chunk));
    return staged(inner_->all_gather_into(host, whose), host, buffer);
  }

  std::unique_ptr<Pending> reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                          std::string_view whose) override {
    const at::NoGradGuard no_grad;
    const at::Tensor sent = on_host(input), host = on_host(output);
    sent.copy_(input);
    return staged(inner_->reduce_scatter(sent, host, whose), host, output, sent);
  }

  std::unique_ptr<Pending> start_all_reduce(const at::Tensor& tensor, std::string_view whose) override {
    const at::NoGradGuard no_grad;
    const at::Tensor host = on_host(tensor);
    host.copy_(tensor);
    return staged(inner_->start_all_reduce(host, whose), host, tensor);
  }

  void all_reduce(at::Tensor& tensor, Reduction reduction) override {
    through_host(tensor, [&](at::Tensor& host) { inner_->all_reduce(host, reduction); });
  }

  void broadcast(at::Tensor& tensor, int root) override {
    through_host(tensor, [&](at::Tensor& host) { inner_->broadcast(host, root); });
  }

  void barrier() override { inner_->barrier(); }
  void abort(const std::string& why) override { inner_->abort(why); }
  void trim() override { inner_->trim(); }

 private:
  /// `sent` lives as long as the inner collective.
  static std::unique_ptr<Pending> staged(std::unique_ptr<Pending> inner, const at::Tensor& host,
                                         const at::Tensor& result, const at::Tensor& sent = {}) {
    return make_pending([inner = std::move(inner), host, result, sent] {
      inner->wait();
      const at::NoGradGuard no_grad;
      result.copy_(host, /*non_blocking=*/true);
    });
  }

  template <typename Collective>
  static void through_host(at::Tensor& tensor, const Collective& collective) {
    const at::NoGradGuard no_grad;
    at::Tensor host = on_host(tensor);
    host.copy_(tensor);
    collective(host);
    tensor.copy_(host, /*non_blocking=*/true);
  }

  std::unique_ptr<Transport> inner_;
  int rank_;
  int world_size_;
};

class StillTransport : public Transport {
 public:
  StillTransport(int rank, int world_size, StillBuffers buffers)
      : rank_(rank), world_size_(world_size), buffers_(buffers) {}

  std::unique_ptr<Pending> all_gather_into(const at::Tensor&, std::string_view) override {
    return std::make_unique<Done>();
  }
  std::unique_ptr<Pending> reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                          std::string_view) override {
    output.copy_(input.narrow(0, 0, output.numel()));
    return hold(buffers_ == StillBuffers::kSockets ? world_size_ - 1 : 0, output);
  }
  std::unique_ptr<Pending> start_all_reduce(const at::Tensor& tensor, std::string_view) override {
    if (buffers_ == StillBuffers::kNone) return std::make_unique<Done>();
    if (buffers_ == StillBuffers::kSharedMemory) return hold(1, tensor);
    const bool whole = world_size_ == 2 || static_cast<std::int64_t>(tensor.nbytes()) <= kSentWhole;
    return hold(world_size_ - 1, whole ? tensor : share_of(tensor, rank_, world_size_));
  }
  void all_reduce(at::Tensor& tensor, Reduction reduction) override {
    if (reduction == Reduction::kSum) start_all_reduce(tensor.view({-1}), {})->wait();
  }
  void broadcast(at::Tensor&, int) override {}
  void barrier() override {}

 private:
  /// A collective that has ended, and holds so many buffers until it is waited for.
  std::unique_ptr<Pending> hold(int count, const at::Tensor& like) {
    std::vector<at::Tensor> buffers;
    for (int i = 0; i < count; ++i) buffers.push_back(pool_.tensor(like.numel(), like.options()));
    return make_pending([buffers = std::move(buffers)]() mutable { buffers.clear(); });
  }

  const int rank_, world_size_;
  const StillBuffers buffers_;
  BufferPool pool_{c10::kCPU};
};

}  // namespace

void tree_sum(const std::vector<at::Tensor>& parts, const std::vector<bool>& may_change, const at::Tensor& output) {
  const Summand sum = sum_of(parts, may_change, 0, parts.size(), &output);
  if (!sum.tensor.is_same(output)) at::Tensor(output).copy_(sum.tensor);
}

at::Tensor share_of(const at::Tensor& tensor, int rank, int world_size) {
  const std::int64_t begin = tensor.numel() * rank / world_size, end = tensor.numel() * (rank + 1) / world_size;
  return tensor.narrow(0, begin, end - begin);
}

std::unique_ptr<Transport> make_staged_transport(std::unique_ptr<Transport> inner, int rank, int world_size) {
  return std::make_unique<StagedTransport>(std::move(inner), rank, world_size);
}

std::unique_ptr<Transport> make_still_transport(int rank, int world_size, StillBuffers buffers) {
  return std::make_unique<StillTransport>(rank, world_size, buffers);
}

}  // namespace fsdp
