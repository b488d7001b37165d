#include "fsdp/comm/transport.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/add.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>

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

}  // namespace

void tree_sum(const std::vector<at::Tensor>& parts, const std::vector<bool>& may_change, const at::Tensor& output) {
  const Summand sum = sum_of(parts, may_change, 0, parts.size(), &output);
  if (!sum.tensor.is_same(output)) at::Tensor(output).copy_(sum.tensor);
}

namespace {

// [Note: staging] The inner transport moves bytes of the host. A start copies what this rank sends to the host, and
// waits for that copy. A wait copies the result back in the order of the current stream, so later work of that stream
// sees it, as with NCCL. Host memory is pinned where the device is a GPU. LibTorch's host allocator keeps it until the
// copy has been made.

at::Tensor on_host(const at::Tensor& like) {
  return at::empty(like.sizes(), at::TensorOptions().dtype(like.scalar_type()).pinned_memory(like.device().is_cuda()));
}

class PendingStaged : public Pending {
 public:
  PendingStaged(std::unique_ptr<Pending> inner, at::Tensor host, at::Tensor result, at::Tensor sent = {})
      : inner_(std::move(inner)), host_(std::move(host)), result_(std::move(result)), sent_(std::move(sent)) {}

  void wait() override {
    inner_->wait();
    const at::NoGradGuard no_grad;
    result_.copy_(host_, /*non_blocking=*/true);
  }

 private:
  std::unique_ptr<Pending> inner_;
  at::Tensor host_, result_;
  at::Tensor sent_;  // lives as long as the inner collective
};

class StagedTransport : public Transport {
 public:
  StagedTransport(std::unique_ptr<Transport> inner, int rank, int world_size)
      : inner_(std::move(inner)), rank_(rank), world_size_(world_size) {}

  std::unique_ptr<Pending> all_gather_into(const at::Tensor& buffer, std::string_view whose) override {
    const at::NoGradGuard no_grad;
    const std::int64_t chunk = buffer.numel() / world_size_;
    const at::Tensor host = on_host(buffer);
    host.narrow(0, rank_ * chunk, chunk).copy_(buffer.narrow(0, rank_ * chunk, chunk));
    return std::make_unique<PendingStaged>(inner_->all_gather_into(host, whose), host, buffer);
  }

  std::unique_ptr<Pending> reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                          std::string_view whose) override {
    const at::NoGradGuard no_grad;
    const at::Tensor sent = on_host(input), host = on_host(output);
    sent.copy_(input);
    return std::make_unique<PendingStaged>(inner_->reduce_scatter(sent, host, whose), host, output, sent);
  }

  std::unique_ptr<Pending> start_all_reduce(const at::Tensor& tensor, std::string_view whose) override {
    const at::NoGradGuard no_grad;
    const at::Tensor host = on_host(tensor);
    host.copy_(tensor);
    return std::make_unique<PendingStaged>(inner_->start_all_reduce(host, whose), host, tensor);
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

}  // namespace

std::unique_ptr<Transport> make_staged_transport(std::unique_ptr<Transport> inner, int rank, int world_size) {
  return std::make_unique<StagedTransport>(std::move(inner), rank, world_size);
}

}  // namespace fsdp
