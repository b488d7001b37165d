#pragma once

#include <c10/core/Allocator.h>

#include <algorithm>
#include <cstdint>

namespace worker {

/// What LibTorch's allocator gives this thread. In use while a c10::DebugInfoGuard of PROFILER_STATE holds it.
class ReportedBytes : public c10::MemoryReportingInfoBase {
 public:
  void reportMemoryUsage(void*, std::int64_t size, std::size_t, std::size_t, c10::Device) override {
    now_ += size;
    peak_ = std::max(peak_, now_);
    sum_ += std::max<std::int64_t>(size, 0);
  }
  bool memoryProfilingEnabled() const override { return true; }

  /// The bytes held above those at the start.
  std::int64_t now() const { return now_; }
  /// The most bytes held above those at the start, or since forget_peak().
  std::int64_t peak() const { return peak_; }
  void forget_peak() { peak_ = now_; }
  /// All bytes that were given, freed again or not.
  std::int64_t sum() const { return sum_; }

 private:
  std::int64_t now_ = 0, peak_ = 0, sum_ = 0;
};

}  // namespace worker
