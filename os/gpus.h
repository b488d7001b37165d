#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace os {

/// One GPU of this machine at one moment.
struct GpuLook {
  std::string uuid;  // "GPU-5b1b..."
  /// The part of the time, in percent, in which the GPU ran anything; absent where it does not say.
  std::optional<double> busy_percent;
  std::optional<std::int64_t> memory_bytes;  // of all programs that use the GPU
  std::vector<std::int64_t> pids;            // of those programs
};

/// Asks the GPUs of this machine.
class Gpus {
 public:
  virtual ~Gpus() = default;
  /// In the order of their numbers. May take as long as the driver does.
  virtual std::vector<GpuLook> look() = 0;
};

/// NVIDIA's own library, which its driver brings, loaded at run time. Null where there is none, or no GPU that it
/// knows.
std::unique_ptr<Gpus> open_nvml(const char* library = "libnvidia-ml.so.1");

/// What the GPUs of one program do together: the mean of their busy_percent, and the sum of their memory.
struct GpuUse {
  std::optional<double> busy_percent;
  std::optional<std::int64_t> memory_bytes;
  bool operator==(const GpuUse&) const = default;
};

/// The program's GPUs are those that `visible_devices` names, as CUDA_VISIBLE_DEVICES does: by number or by (the
/// beginning of) UUID, up to the first name that is unknown. Without that variable they are those that one of `pids`
/// uses. nullopt: it has none.
std::optional<GpuUse> use_of(const std::vector<GpuLook>& gpus, const std::optional<std::string>& visible_devices,
                             const std::vector<std::int64_t>& pids);

}  // namespace os
