#include "worker/batch/batch.h"

#include <stdexcept>

namespace worker {
namespace {

template <class Change>
Batch with_each(const Batch& batch, const Change& change) {
  Batch out;
  out.samples = batch.samples;
  out.tokens = batch.tokens;
  out.weight = batch.weight;
  for (const auto& [name, tensor] : batch.tensors) out.tensors.emplace(name, change(tensor));
  return out;
}

}  // namespace

const at::Tensor& Batch::at(std::string_view name) const {
  const auto found = tensors.find(name);
  if (found != tensors.end()) return found->second;
  std::string names;
  for (const auto& [other, unused] : tensors) names += (names.empty() ? "" : ", ") + other;
  throw std::logic_error("a batch has no tensor \"" + std::string(name) + "\"; it has " +
                         (names.empty() ? "none" : names));
}

Batch Batch::to(at::Device device) const {
  return with_each(*this, [&](const at::Tensor& tensor) { return tensor.to(device, /*non_blocking=*/true); });
}

Batch Batch::pinned() const {
  return with_each(*this, [](const at::Tensor& tensor) { return tensor.pin_memory(); });
}

}  // namespace worker
