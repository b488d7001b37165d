#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace base {

/// One GPU of this machine at one moment.
struct GpuLook {
  std::string uuid;  // "GPU-5b1b..."
  /// The part of the time, in percent, in which the GPU ran anything; absent where it does not say.
  std::optional<double> busy_percent;
  std::optional<std::int64_t> memory_bytes;  // of all programs that use the GPU
  std::vector<std::int64_t> pids;            // of those programs
};

/// A device that CUDA_VISIBLE_DEVICES can give to a program: a GPU, or a part of a divided GPU (MIG).
struct GpuDevice {
  std::uint32_t number = 0;  // of the GPU, from 0, in the order of PCI; its parts have the same
  std::string id;            // "GPU-5b1b...", of a part "MIG-77aa..."
  std::string gpu;           // the UUID of the GPU
  std::string name;          // "NVIDIA H100 80GB HBM3"; empty: not known
  bool operator==(const GpuDevice&) const = default;
};

/// Asks the GPUs of this machine.
class Gpus {
 public:
  virtual ~Gpus() = default;
  /// In the order of their numbers. One that does not answer is left out, and so is a divided one without parts.
  virtual std::vector<GpuDevice> devices() { return {}; }
  /// In the order of their numbers. May take as long as the driver does.
  virtual std::vector<GpuLook> look() = 0;
};

/// NVIDIA's own library, which its driver brings, loaded at run time. Null where there is none, or no GPU that it
/// knows.
std::unique_ptr<Gpus> open_nvml(const char* library = "libnvidia-ml.so.1");

/// True if `devices` shows a GPU of any maker: NVIDIA's, AMD's, or Windows' behind WSL.
bool has_gpu_device(const std::filesystem::path& devices = "/dev");

/// The signs of GPUs that the kernel shows, whatever their driver's library says.
struct GpuSigns {
  bool nvidia = false;  // NVIDIA's driver is loaded, or shows a GPU
  bool any = false;     // there is a GPU, with a driver or without one
  bool operator==(const GpuSigns&) const = default;
};
/// Reads dev, proc/driver/nvidia and sys/bus/pci below `root`.
GpuSigns signs_of_gpus(const std::filesystem::path& root = "/");

/// Those that `names` names, in that order, each once: as CUDA_VISIBLE_DEVICES does, by number or by (the beginning of)
/// a UUID, up to the first name that is unknown. That name is put into `unknown`. A divided GPU stands for its first
/// part.
std::vector<GpuDevice> devices_named(const std::vector<GpuDevice>& devices, const std::string& names,
                                     std::string* unknown = nullptr);

/// The joint use of all GPUs of one program: the mean of their busy_percent, and the sum of their memory.
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

}  // namespace base
