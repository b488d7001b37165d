#include "fsdp/files/snapshot.h"

#include <ATen/core/grad_mode.h>
#include <ATen/ops/empty.h>
#include <c10/core/Stream.h>
#include <c10/core/impl/VirtualGuardImpl.h>

namespace fsdp {

at::Tensor Snapshot::take(const std::string& key, const at::Tensor& tensor) {
  const at::NoGradGuard no_grad;
  at::Tensor copy = kept_[key];
  if (!copy.defined() || copy.sizes() != tensor.sizes() || copy.scalar_type() != tensor.scalar_type())
    copy = at::empty(tensor.sizes(), at::TensorOptions().dtype(tensor.scalar_type()).pinned_memory(tensor.is_cuda()));
  copy.copy_(tensor, /*non_blocking=*/true);
  if (!tensor.is_cpu()) device_ = tensor.device();
  taken_[key] = copy;
  return copy;
}

void Snapshot::finish() {
  kept_.clear();
  if (device_) c10::impl::VirtualGuardImpl(device_->type()).getStream(*device_).synchronize();
}

std::int64_t Snapshot::bytes() const {
  std::int64_t bytes = 0;
  for (const auto& [key, copy] : taken_) bytes += static_cast<std::int64_t>(copy.nbytes());
  return bytes;
}

}  // namespace fsdp
