#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <atomic>
#include <cstdint>

namespace worker {

/// Counts the bytes of tensors on the CPU, as LibTorch's allocator reports them. In use while a c10::DebugInfoGuard of
/// PROFILER_STATE holds it, for the guard's thread and the backward passes that it starts. Memory that another thread
/// frees is counted as held until the next begin().
class TensorBytes : public c10::MemoryReportingInfoBase {
 public:
  /// That of the calling thread's guard; null: there is none.
  static TensorBytes* current() {
    return dynamic_cast<TensorBytes*>(c10::ThreadLocalDebugInfo::get(c10::DebugInfoKind::PROFILER_STATE));
  }

  void reportMemoryUsage(void* /*start*/, std::int64_t bytes, std::size_t /*allocated*/, std::size_t /*reserved*/,
                         c10::Device device) override {
    if (!device.is_cpu()) return;
    const std::int64_t now = now_.fetch_add(bytes, std::memory_order_relaxed) + bytes;
    if (now > peak_.load(std::memory_order_relaxed)) peak_.store(now, std::memory_order_relaxed);
  }
  bool memoryProfilingEnabled() const override { return true; }

  /// peak() begins anew.
  void begin() { peak_.store(now_.load(std::memory_order_relaxed), std::memory_order_relaxed); }
  /// The most bytes held at one time since begin().
  std::int64_t peak() const { return peak_.load(std::memory_order_relaxed); }

 private:
  std::atomic<std::int64_t> now_{0}, peak_{0};
};

}  // namespace worker
