// NVIDIA's management library, as far as muster needs it. Its headers are not needed: the library keeps its functions
// and their structures as they are, and gives a changed one another name.
#include <dlfcn.h>

#include <algorithm>
#include <array>

#include "os/gpus.h"

namespace os {
namespace {

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
constexpr unsigned kMostProcesses = 256, kMostGpus = 64;

class Library {
 public:
  explicit Library(const char* name) : handle_(::dlopen(name, RTLD_NOW | RTLD_LOCAL)) {}
  ~Library() {
    if (handle_ != nullptr) ::dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;
  explicit operator bool() const { return handle_ != nullptr; }

  template <typename Function>
  bool find(const char* name, Function*& function) const {
    function = reinterpret_cast<Function*>(::dlsym(handle_, name));
    return function != nullptr;
  }

 private:
  void* handle_;
};

class Nvml : public Gpus {
 public:
  explicit Nvml(const char* library) : library_(library) {
    int (*begin)() = nullptr;
    if (!library_ || !library_.find("nvmlInit_v2", begin) || !library_.find("nvmlShutdown", end_)) return;
    if (!library_.find("nvmlDeviceGetCount_v2", count_) ||
        !library_.find("nvmlDeviceGetHandleByIndex_v2", device_at_) || !library_.find("nvmlDeviceGetUUID", uuid_)) {
      return;
    }
    library_.find("nvmlDeviceGetUtilizationRates", utilization_);
    library_.find("nvmlDeviceGetMemoryInfo", memory_);
    library_.find("nvmlDeviceGetComputeRunningProcesses_v3", processes_);
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

  std::vector<GpuLook> look() override {
    std::vector<GpuLook> all;
    for (unsigned index = 0, end = count(); index < end; ++index) all.push_back(look_at(index));
    return all;
  }

 private:
  /// One that does not answer keeps its place: the numbers of the others count.
  GpuLook look_at(unsigned index) const {
    GpuLook look;
    Device device = nullptr;
    if (device_at_(index, &device) != kSuccess) return look;
    std::array<char, 96> uuid{};
    if (uuid_(device, uuid.data(), uuid.size() - 1) == kSuccess) look.uuid = uuid.data();
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

  const Library library_;
  bool is_open_ = false;
  int (*end_)() = nullptr;
  int (*count_)(unsigned*) = nullptr;
  int (*device_at_)(unsigned, Device*) = nullptr;
  int (*uuid_)(Device, char*, unsigned) = nullptr;
  int (*utilization_)(Device, Utilization*) = nullptr;
  int (*memory_)(Device, Memory*) = nullptr;
  int (*processes_)(Device, unsigned*, Process*) = nullptr;
};

}  // namespace

std::unique_ptr<Gpus> open_nvml(const char* library) {
  auto nvml = std::make_unique<Nvml>(library);
  if (nvml->count() == 0) return nullptr;
  return nvml;
}

}  // namespace os
