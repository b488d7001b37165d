#include "fsdp/engine/host_activations.h"

#include <ATen/EmptyTensor.h>
#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty_strided.h>
#include <c10/core/StreamGuard.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <algorithm>
#include <utility>

#include "fsdp/comm/buffer_pool.h"
#include "fsdp/engine/dry_run.h"

namespace fsdp {

struct HostActivations::Bytes {
  std::int64_t now = 0, peak = 0;
  void add(std::int64_t bytes) {
    now += bytes;
    peak = std::max(peak, now);
  }
};

HostActivations::HostActivations(c10::Device device, std::int64_t least_bytes)
    : device_(device), least_bytes_(least_bytes), bytes_(std::make_shared<Bytes>()) {
  if (!device.is_cpu()) copies_ = c10::impl::VirtualGuardImpl(device.type()).getStreamFromGlobalPool(device);
}

HostActivations::~HostActivations() {
  release();
}

HostActivations::Waiting::~Waiting() {
  if (bytes_) bytes_->add(-host_bytes_);
  if (!come_ || !is_coming_) return;
  // Nobody has waited for what is coming, and its memory is given away now.
  come_->block(current_stream(come_->device()));
}

bool HostActivations::moves(const at::Tensor& tensor) const {
  return tensor.defined() && tensor.device() == device_ && tensor.is_non_overlapping_and_dense() &&
         static_cast<std::int64_t>(tensor.nbytes()) >= least_bytes_;
}

at::Tensor HostActivations::to_host(const at::Tensor& tensor) const {
  if (DryRunGuard::is_active())
    return at::Tensor(at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type()));
  const at::Tensor host = at::empty_strided(
      tensor.sizes(), tensor.strides(),
      at::TensorOptions().dtype(tensor.scalar_type()).device(at::kCPU).pinned_memory(device_.is_cuda()));
  host.copy_(tensor, /*non_blocking=*/true);
  return host;
}

std::shared_ptr<HostActivations::Waiting> HostActivations::put(std::vector<at::Tensor> tensors) {
  const at::NoGradGuard no_grad;
  release();
  const auto waiting = std::make_shared<Waiting>();
  waiting->bytes_ = bytes_;
  std::optional<c10::StreamGuard> on_copies;
  if (copies_) {
    c10::Event made(device_.type());
    made.record(current_stream(device_));
    made.block(*copies_);
    on_copies.emplace(*copies_);
  }
  for (at::Tensor& tensor : tensors) {
    if (!moves(tensor)) {
      waiting->places_.push_back({.stays = std::move(tensor), .on_host = {}, .coming = {}});
      continue;
    }
    waiting->places_.push_back({.stays = {}, .on_host = to_host(tensor), .coming = {}});
    waiting->host_bytes_ += static_cast<std::int64_t>(tensor.nbytes());
    if (copies_) leaving_.push_back(std::move(tensor));
  }
  if (copies_) {
    left_.emplace(device_.type());
    left_->record(*copies_);
  }
  bytes_->add(waiting->host_bytes_);
  std::erase_if(waiting_, [](const auto& one) { return one.expired(); });
  waiting_.push_back(waiting);
  return waiting;
}

std::vector<at::Tensor> HostActivations::get(const std::shared_ptr<Waiting>& waiting) {
  const at::NoGradGuard no_grad;
  release();
  bring(*waiting);
  if (copies_) waiting->come_->block(current_stream(device_));
  waiting->is_coming_ = false;
  std::vector<at::Tensor> out;
  for (Waiting::Place& place : waiting->places_)
    out.push_back(place.on_host.defined() ? std::exchange(place.coming, {}) : place.stays);
  // Backward goes through the parts from the last one to the first.
  const auto is_it = [&](const auto& one) { return one.lock() == waiting; };
  const auto it = std::find_if(waiting_.begin(), waiting_.end(), is_it);
  if (it == waiting_.end()) return out;
  waiting_.erase(it, waiting_.end());
  while (!waiting_.empty() && waiting_.back().expired()) waiting_.pop_back();
  if (const auto next = waiting_.empty() ? nullptr : waiting_.back().lock()) bring(*next);
  return out;
}

/// Starts the copies to the device, unless they were started.
void HostActivations::bring(Waiting& waiting) const {
  if (std::exchange(waiting.is_coming_, true)) return;
  const bool dry = DryRunGuard::is_active();
  for (Waiting::Place& place : waiting.places_) {
    if (!place.on_host.defined()) continue;
    place.coming = at::empty_strided(place.on_host.sizes(), place.on_host.strides(),
                                     at::TensorOptions().dtype(place.on_host.scalar_type()).device(device_));
  }
  std::optional<c10::StreamGuard> on_copies;
  if (copies_) {
    c10::Event allocated(device_.type());
    allocated.record(current_stream(device_));
    allocated.block(*copies_);
    on_copies.emplace(*copies_);
  }
  for (Waiting::Place& place : waiting.places_)
    if (place.on_host.defined() && !dry) place.coming.copy_(place.on_host, /*non_blocking=*/true);
  if (!copies_) return;
  waiting.come_.emplace(device_.type());
  waiting.come_->record(*copies_);
}

/// Lets go of tensors whose copies are under way, as soon as the computation waits for these.
void HostActivations::release() {
  if (leaving_.empty()) return;
  left_->block(current_stream(device_));
  leaving_.clear();
}

std::int64_t HostActivations::bytes() const {
  return bytes_->now;
}

std::int64_t HostActivations::peak_bytes() const {
  return bytes_->peak;
}

}  // namespace fsdp
