#include "base/gpus.h"

#include <algorithm>
#include <charconv>
#include <fstream>
#include <initializer_list>
#include <sstream>
#include <system_error>

#include "base/first_word.h"

namespace base {
namespace {

std::optional<std::size_t> number_of(const std::string& name) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  return error == std::errc() && end == name.data() + name.size() ? std::optional(number) : std::nullopt;
}

/// The names of "0, GPU-5b1b", without spaces.
std::vector<std::string> names_in(const std::string& text) {
  std::vector<std::string> names;
  std::istringstream list(text);
  for (std::string name; std::getline(list, name, ',');) {
    std::erase(name, ' ');
    names.push_back(std::move(name));
  }
  return names;
}

const GpuLook* gpu_named(const std::vector<GpuLook>& gpus, const std::string& name) {
  if (const auto number = number_of(name)) return *number < gpus.size() ? &gpus[*number] : nullptr;
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
    const auto number = number_of(name);
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

}  // namespace base
