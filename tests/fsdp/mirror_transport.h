#pragma once
#include <ATen/core/grad_mode.h>
#include <c10/core/Event.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <memory>
#include <optional>
#include <utility>

#include "fsdp/comm/transport.h"

/// Collectives of a rank that is alone: each peer has what this rank has. So one process computes what a rank of a
/// world computes, and a seed brings everything back.
///
/// On a device with streams a collective runs on a stream of its own, as NCCL's does: it begins when the current stream
/// has got to its start, and whoever waits makes the own stream wait for its end.
class MirrorTransport : public fsdp::Transport {
 public:
  MirrorTransport(at::Device device, int rank, int world_size) : device_(device), rank_(rank), ranks_(world_size) {
    if (!device.is_cpu()) side_ = streams().getStreamFromGlobalPool(device, /*isHighPriority=*/true);
  }

  std::unique_ptr<fsdp::Pending> all_gather_into(const at::Tensor& buffer, std::string_view) override {
    return start(buffer, [&] {
      for (int rank = 0; rank < ranks_; ++rank)
        if (rank != rank_) part(buffer, rank).copy_(part(buffer, rank_));
    });
  }
  /// The sum over all parts, so that each part counts.
  std::unique_ptr<fsdp::Pending> reduce_scatter(const at::Tensor& input, const at::Tensor& output,
                                                std::string_view) override {
    return start(input, [&] {
      output.copy_(part(input, 0));
      for (int rank = 1; rank < ranks_; ++rank) output.add_(part(input, rank));
    });
  }
  std::unique_ptr<fsdp::Pending> start_all_reduce(const at::Tensor& tensor, std::string_view) override {
    return start(tensor, [&] {
      if (tensor.scalar_type() != at::kBool) tensor.mul_(ranks_);  // a sum of bools is "any of them"
    });
  }
  void all_reduce(at::Tensor& tensor, fsdp::Reduction reduction) override {
    if (reduction == fsdp::Reduction::kSum) start_all_reduce(tensor, {})->wait();
  }
  void broadcast(at::Tensor&, int) override {}
  void barrier() override {}

 private:
  struct Started : fsdp::Pending {
    Started(std::optional<c10::Event> e, at::Device d) : end(std::move(e)), device(d) {}
    void wait() override {
      if (end) end->block(c10::impl::VirtualGuardImpl(device.type()).getStream(device));
    }
    std::optional<c10::Event> end;
    at::Device device;
  };

  template <class Collective>
  std::unique_ptr<fsdp::Pending> start(const at::Tensor& tensor, const Collective& collective) {
    const at::NoGradGuard no_grad;
    if (tensor.is_cpu()) {
      collective();
      return std::make_unique<fsdp::Done>();
    }
    c10::Event begin(device_.type()), end(device_.type());
    begin.record(streams().getStream(device_));
    begin.block(*side_);
    const c10::StreamGuard on_side(*side_);
    collective();
    end.record(*side_);
    return std::make_unique<Started>(std::move(end), device_);
  }

  at::Tensor part(const at::Tensor& buffer, int rank) const {
    const std::int64_t chunk = buffer.numel() / ranks_;
    return buffer.narrow(0, rank * chunk, chunk);
  }
  c10::impl::VirtualGuardImpl streams() const { return c10::impl::VirtualGuardImpl(device_.type()); }

  at::Device device_;
  int rank_, ranks_;
  std::optional<c10::Stream> side_;
};
