#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/core/Device.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>
#include <compare>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

namespace fsdp {

/// Where a unit keeps what it has between steps. Every rank must pass the same value, and all units of a model too.
///
/// A model on a GPU that does not fit trains with to_cpu: parameters, reduced gradients and optimizer states lie in the
/// CPU's memory, and the optimizer runs there. The GPU holds gathered parameters and unreduced gradients alone. A
/// gather copies the shard to the device first; a reduction copies its result back. The optimizer's step waits for the
/// device once. As CPUOffloadPolicy of PyTorch's FSDP2.
///
/// A model on the CPU makes the same copies, within one memory: of no use but for tests.
struct Offload {
  bool to_cpu = false;
  /// Locks the pages of parameters and gradients, so that copies run beside the computation. Set it to false where
  /// locked memory is short. Only for models on a GPU.
  bool pin_memory = true;

  /// Where the shards of a model on `device` live.
  c10::Device home(c10::Device device) const { return to_cpu ? c10::Device(c10::kCPU) : device; }
  auto operator<=>(const Offload&) const = default;
};

// Storages whose memory comes and goes below tensors that stay.
//
// [Note: closed storage] The engine frees parameters and gradients, while the module, autograd and their users keep
// tensors of them. A storage without memory is closed: whoever reads or writes one of its tensors gets a c10::Error
// with the text of name_storage(). Without that the process would end by SIGSEGV, without a word. Shapes of such
// tensors are known, and views of them can be made. A storage is open while it has memory.

/// A contiguous tensor [numel] that believes to have memory and has none: views of it can be made, not read. Fill or
/// free its storage before use.
at::Tensor without_memory(std::int64_t numel, const at::TensorOptions& options);
/// Points the storage of `tensor` at `memory`. Tensors that share the storage follow, and their versions stay.
void fill_storage(const at::Tensor& tensor, c10::DataPtr memory, std::int64_t bytes);
/// Takes the memory of the storage of `tensor`, and closes it; see [Note: closed storage].
void free_storage(const at::Tensor& tensor);
/// Sets the text for an access while the storage of `tensor` is closed: a sentence that names the owner and the remedy.
void name_storage(const at::Tensor& tensor, std::string closed);
/// Bytes of memory that the storage of a tensor has: 0 when it is closed, or the tensor undefined.
std::int64_t storage_bytes(const at::Tensor& tensor);
/// True if both tensors have memory of one storage, now or later; also a closed one, unlike Tensor::is_alias_of().
bool share_storage(const at::Tensor& a, const at::Tensor& b);

/// The bytes of tensors on the CPU, as LibTorch's allocator reports them. In use while a CountTensorBytes lives, for
/// its thread and the backward passes that this thread starts. Memory that another thread frees counts as held.
class TensorBytes : public c10::MemoryReportingInfoBase {
 public:
  /// Those that the calling thread counts; null: it counts none.
  static TensorBytes* current() {
    return dynamic_cast<TensorBytes*>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE));
  }

  void reportMemoryUsage(void* /*start*/, std::int64_t bytes, std::size_t /*allocated*/, std::size_t /*reserved*/,
                         c10::Device device) override {
    if (!device.is_cpu()) return;
    const std::int64_t now = now_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (now > peak()) peak_.store(now, std::memory_order_relaxed);
    sum_.fetch_add(std::max<std::int64_t>(bytes, 0), std::memory_order_relaxed);
  }
  bool memoryProfilingEnabled() const override { return true; }

  /// Bytes held now, above those at the start.
  std::int64_t now() const { return now_.load(std::memory_order_relaxed); }
  /// The most bytes held at one time above those at the start, since the start or since forget_peak().
  std::int64_t peak() const { return peak_.load(std::memory_order_relaxed); }
  void forget_peak() { peak_.store(now(), std::memory_order_relaxed); }
  /// All bytes that were given, freed again or not.
  std::int64_t sum() const { return sum_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> now_{0}, peak_{0}, sum_{0};
};

/// Counts what this thread allocates and frees while it lives. Belongs to one thread.
class CountTensorBytes {
 public:
  explicit CountTensorBytes(std::shared_ptr<TensorBytes> bytes = std::make_shared<TensorBytes>())
      : bytes_(std::move(bytes)), guard_(c10::DebugInfoKind::PROFILER_STATE, bytes_) {}
  TensorBytes& bytes() { return *bytes_; }

 private:
  std::shared_ptr<TensorBytes> bytes_;
  c10::DebugInfoGuard guard_;
};

}  // namespace fsdp
