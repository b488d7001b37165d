#include "os/gpus.h"

#include <algorithm>
#include <charconv>
#include <sstream>
#include <system_error>

namespace os {
namespace {

const GpuLook* gpu_named(const std::vector<GpuLook>& gpus, const std::string& name) {
  std::size_t number = 0;
  const auto [end, error] = std::from_chars(name.data(), name.data() + name.size(), number);
  if (error == std::errc() && end == name.data() + name.size()) return number < gpus.size() ? &gpus[number] : nullptr;
  const auto found =
      std::ranges::find_if(gpus, [&](const auto& gpu) { return !name.empty() && gpu.uuid.starts_with(name); });
  return found == gpus.end() ? nullptr : &*found;
}

std::vector<const GpuLook*> gpus_named(const std::vector<GpuLook>& gpus, const std::string& names) {
  std::vector<const GpuLook*> found;
  std::istringstream list(names);
  for (std::string name; std::getline(list, name, ',');) {
    std::erase(name, ' ');
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

}  // namespace

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

}  // namespace os
