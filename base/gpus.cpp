#include "base/gpus.h"

#include <dlfcn.h>

#include <algorithm>
#include <array>
#include <initializer_list>
#include <system_error>

#include "base/numbers.h"
#include "base/words.h"

namespace base {
namespace {

/// The names of "0, GPU-5b1b", without spaces.
std::vector<std::string> names_in(std::string text) {
  std::erase(text, ' ');
  return split(text, ',');
}

const GpuLook* gpu_named(const std::vector<GpuLook>& gpus, const std::string& name) {
  if (const auto number = whole_number<std::size_t>(name)) return *number < gpus.size() ? &gpus[*number] : nullptr;
  const auto found =
      std::ranges::find_if(gpus, [&](const auto& gpu) { return !name.empty() && gpu.uuid.starts_with(name); });
  return found == gpus.end() ? nullptr : &*found;
}

std::vector<const GpuLook*> gpus_named(const std::vector<GpuLook>& gpus, const std::string& names) {
  std::vector<const GpuLook*> found;
  for (const auto& name : names_in(names)) {
    const auto* gpu = gpu_named(gpus, name);
    if (gpu == nullptr) break;  // as CUDA does
    if (std::ranges::find(found, gpu) == found.end()) found.push_back(gpu);
  }
  return found;
}

std::vector<const GpuLook*> gpus_used(const std::vector<GpuLook>& gpus, const std::vector<std::int64_t>& pids) {
  std::vector<const GpuLook*> found;
  for (const auto& gpu : gpus) {
    const auto is_own = [&](auto pid) { return std::ranges::find(pids, pid) != pids.end(); };
    if (std::ranges::any_of(gpu.pids, is_own)) found.push_back(&gpu);
  }
  return found;
}

/// Displays and computing devices of NVIDIA, also without a driver.
bool has_nvidia_on_pci(const std::filesystem::path& devices) {
  std::error_code none;
  for (std::filesystem::directory_iterator one(devices, none), end; !none && one != end; one.increment(none)) {
    if (first_word(one->path() / "vendor") == "0x10de" && first_word(one->path() / "class").starts_with("0x03")) {
      return true;
    }
  }
  return false;
}

bool is_any_there(const std::filesystem::path& folder, std::initializer_list<const char*> names) {
  return std::ranges::any_of(names, [&](const char* name) {
    std::error_code ignored;
    return std::filesystem::exists(folder / name, ignored);
  });
}

// NVIDIA's management library, as far as muster needs it. Its headers are not needed: the library keeps its functions
// and their structures as they are, and gives a changed one another name.

using Device = void*;
struct Utilization {
  unsigned gpu = 0, memory = 0;  // percent
};
struct Memory {
  unsigned long long total = 0, free = 0, used = 0;
};
struct Process {
  unsigned pid = 0;
  unsigned long long memory = 0;
  unsigned gpu_instance = 0, compute_instance = 0;
};
constexpr int kSuccess = 0;
constexpr unsigned kMostProcesses = 256, kMostGpus = 64, kMostParts = 64;

class Nvml : public Gpus {
 public:
  explicit Nvml(const char* library) : library_(::dlopen(library, RTLD_NOW | RTLD_LOCAL), &::dlclose) {
    int (*begin)() = nullptr;
    if (!library_ || !find("nvmlInit_v2", begin) || !find("nvmlShutdown", end_)) return;
    if (!find("nvmlDeviceGetCount_v2", count_) || !find("nvmlDeviceGetHandleByIndex_v2", device_at_) ||
        !find("nvmlDeviceGetUUID", uuid_)) {
      return;
    }
    find("nvmlDeviceGetUtilizationRates", utilization_);
    find("nvmlDeviceGetMemoryInfo", memory_);
    find("nvmlDeviceGetComputeRunningProcesses_v3", processes_);
    find("nvmlDeviceGetName", name_);
    find("nvmlDeviceGetMigMode", mig_mode_);
    find("nvmlDeviceGetMaxMigDeviceCount", most_parts_);
    find("nvmlDeviceGetMigDeviceHandleByIndex", part_at_);
    is_open_ = begin() == kSuccess;
  }
  ~Nvml() override {
    if (is_open_) end_();
  }
  Nvml(const Nvml&) = delete;
  Nvml& operator=(const Nvml&) = delete;

  unsigned count() const {
    unsigned count = 0;
    return is_open_ && count_(&count) == kSuccess ? std::min(count, kMostGpus) : 0;
  }

  std::vector<GpuDevice> devices() override {
    std::vector<GpuDevice> all;
    for (unsigned index = 0, end = count(); index < end; ++index) {
      Device device = nullptr;
      if (device_at_(index, &device) != kSuccess) continue;
      const GpuDevice gpu{.number = index, .id = uuid_of(device), .gpu = uuid_of(device), .name = name_of(device)};
      if (gpu.id.empty()) continue;
      if (!is_divided(device)) {
        all.push_back(gpu);
        continue;
      }
      for (auto& part : parts_of(device)) {
        all.push_back({.number = index, .id = std::move(part), .gpu = gpu.id, .name = gpu.name});
      }
    }
    return all;
  }

  std::vector<GpuLook> look() override {
    std::vector<GpuLook> all;
    for (unsigned index = 0, end = count(); index < end; ++index) all.push_back(look_at(index));
    return all;
  }

 private:
  template <typename Function>
  bool find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(::dlsym(library_.get(), name));
    return function != nullptr;
  }
  std::string uuid_of(Device device) const {
    std::array<char, 96> text{};
    return uuid_(device, text.data(), text.size() - 1) == kSuccess ? text.data() : std::string();
  }
  std::string name_of(Device device) const {
    std::array<char, 96> text{};
    const bool known = name_ != nullptr && name_(device, text.data(), text.size() - 1) == kSuccess;
    return known ? text.data() : std::string();
  }
  bool is_divided(Device device) const {
    unsigned now = 0, later = 0;
    return mig_mode_ != nullptr && mig_mode_(device, &now, &later) == kSuccess && now != 0;
  }
  std::vector<std::string> parts_of(Device device) const {
    std::vector<std::string> parts;
    unsigned most = 0;
    if (most_parts_ == nullptr || part_at_ == nullptr || most_parts_(device, &most) != kSuccess) return parts;
    for (unsigned index = 0; index < std::min(most, kMostParts); ++index) {
      Device part = nullptr;
      if (part_at_(device, index, &part) != kSuccess) continue;
      if (auto uuid = uuid_of(part); !uuid.empty()) parts.push_back(std::move(uuid));
    }
    return parts;
  }
  /// One that does not answer keeps its place: the numbers of the others count.
  GpuLook look_at(unsigned index) const {
    GpuLook look;
    Device device = nullptr;
    if (device_at_(index, &device) != kSuccess) return look;
    look.uuid = uuid_of(device);
    Utilization utilization;
    if (utilization_ != nullptr && utilization_(device, &utilization) == kSuccess) look.busy_percent = utilization.gpu;
    Memory memory;
    if (memory_ != nullptr && memory_(device, &memory) == kSuccess) {
      look.memory_bytes = static_cast<std::int64_t>(memory.used);
    }
    std::array<Process, kMostProcesses> processes{};
    unsigned count = kMostProcesses;
    if (processes_ != nullptr && processes_(device, &count, processes.data()) == kSuccess) {
      for (unsigned i = 0; i < std::min(count, kMostProcesses); ++i) look.pids.push_back(processes[i].pid);
    }
    return look;
  }

  const std::unique_ptr<void, int (*)(void*)> library_;
  bool is_open_ = false;
  int (*end_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*device_at_)(unsigned, Device*) = nullptr;
  int (*uuid_)(Device, char*, unsigned) = nullptr;
  int (*utilization_)(Device, Utilization*) = nullptr;
  int (*memory_)(Device, Memory*) = nullptr;
  int (*processes_)(Device, unsigned*, Process*) = nullptr;
  int (*name_)(Device, char*, unsigned) = nullptr;
  int (*mig_mode_)(Device, unsigned*, unsigned*) = nullptr;
  int (*most_parts_)(Device, unsigned*) = nullptr;
  int (*part_at_)(Device, unsigned, Device*) = nullptr;
};

}  // namespace

bool has_gpu_device(const std::filesystem::path& devices) {
  return is_any_there(devices, {"nvidiactl", "nvidia0", "kfd", "dxg"});
}

GpuSigns signs_of_gpus(const std::filesystem::path& root) {
  GpuSigns signs;
  signs.nvidia = is_any_there(root, {"dev/nvidiactl", "dev/nvidia0", "proc/driver/nvidia"});
  signs.any = signs.nvidia || has_gpu_device(root / "dev") || has_nvidia_on_pci(root / "sys/bus/pci/devices");
  return signs;
}

std::vector<GpuDevice> devices_named(const std::vector<GpuDevice>& devices, const std::string& names,
                                     std::string* unknown) {
  std::vector<GpuDevice> found;
  for (const auto& name : names_in(names)) {
    const auto number = whole_number<std::size_t>(name);
    const auto is_meant = [&](const GpuDevice& one) {
      return number ? one.number == *number : !name.empty() && (one.id.starts_with(name) || one.gpu.starts_with(name));
    };
    const auto device = std::ranges::find_if(devices, is_meant);
    if (device == devices.end()) {
      if (unknown != nullptr) *unknown = name;
      break;
    }
    if (std::ranges::find(found, *device) == found.end()) found.push_back(*device);
  }
  return found;
}

std::optional<GpuUse> use_of(const std::vector<GpuLook>& gpus, const std::optional<std::string>& visible_devices,
                             const std::vector<std::int64_t>& pids) {
  const auto own = visible_devices ? gpus_named(gpus, *visible_devices) : gpus_used(gpus, pids);
  if (own.empty()) return std::nullopt;
  GpuUse use;
  double busy = 0;
  int tell = 0;
  for (const auto* gpu : own) {
    if (gpu->memory_bytes) use.memory_bytes = use.memory_bytes.value_or(0) + *gpu->memory_bytes;
    if (!gpu->busy_percent) continue;
    busy += *gpu->busy_percent;
    ++tell;
  }
  if (tell > 0) use.busy_percent = busy / tell;
  return use;
}

std::unique_ptr<Gpus> open_nvml(const char* library) {
  auto nvml = std::make_unique<Nvml>(library);
  if (nvml->count() == 0) return nullptr;
  return nvml;
}

}  // namespace base
