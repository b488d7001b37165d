#pragma once
#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

namespace fsdp {

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
