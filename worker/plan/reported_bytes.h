#pragma once

#include <c10/core/Allocator.h>
#include <c10/util/ThreadLocalDebugInfo.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <utility>

namespace worker {

/// The bytes of the tensors on the CPU that LibTorch's allocator gives one thread. In use while a CountBytes lives.
class ReportedBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device device) override {
    if (!device.is_cpu()) return;
    now_ += size;
    peak_ = std::max(peak_, now_);
    sum_ += std::max<std::int64_t>(size, 0);
  }
  bool memoryProfilingEnabled() const override { return true; }

  /// Bytes held now, above those at the start.
  std::int64_t now() const { return now_; }
  /// The most bytes held above those at the start, since the start or since forget_peak().
  std::int64_t peak() const { return peak_; }
  void forget_peak() { peak_ = now_; }
  /// All bytes that were given, freed again or not.
  std::int64_t sum() const { return sum_; }

 private:
  std::int64_t now_ = 0, peak_ = 0, sum_ = 0;
};

/// Counts what this thread allocates and frees while it lives. Belongs to one thread.
class CountBytes {
 public:
  explicit CountBytes(std::shared_ptr<ReportedBytes> bytes)
      : bytes_(std::move(bytes)), guard_(c10::DebugInfoKind::PROFILER_STATE, bytes_) {}
  ReportedBytes& bytes() { return *bytes_; }

 private:
  std::shared_ptr<ReportedBytes> bytes_;
  c10::DebugInfoGuard guard_;
};

}  // namespace worker
