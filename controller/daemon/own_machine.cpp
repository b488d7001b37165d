#include "daemon/own_machine.h"

#include <sched.h>
#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <sstream>
#include <thread>

#include "core/text.h"
#include "daemon/environment.h"
#include "daemon/usage_error.h"
#include "os/gpus.h"
#include "os/host_name.h"
#include "os/patience.h"

namespace musterd {
namespace {

using executors::OwnGpu;
using executors::OwnMachine;

constexpr std::chrono::seconds kDriverPatience{15};
constexpr std::uint32_t kMostCores = 65536;
constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";

/// A driver that hangs keeps a thread, and musterd starts without its GPUs.
std::vector<os::GpuDevice> ask_driver(const std::string& library) {
  auto devices = os::ask_within<std::vector<os::GpuDevice>>(kDriverPatience, [library] {
    const auto gpus = library.empty() ? os::open_nvml() : os::open_nvml(library.c_str());
    return gpus == nullptr ? std::vector<os::GpuDevice>() : gpus->devices();
  });
  if (devices) return std::move(*devices);
  spdlog::warn(
      "the GPUs of this machine are not known: the driver did not answer within {} s; start musterd again when "
      "nvidia-smi answers",
      kDriverPatience.count());
  return {};
}

std::vector<OwnGpu> own_gpus(const std::vector<os::GpuDevice>& devices) {
  std::vector<OwnGpu> gpus;
  for (const auto& device : devices) gpus.push_back({device.number, device.id, device.name});
  return gpus;
}

/// As they are written, each once: nobody lists what there is.
std::vector<OwnGpu> named_gpus(const std::string& text) {
  std::vector<OwnGpu> gpus;
  std::istringstream list(text);
  for (std::string name; std::getline(list, name, ',');) {
    std::erase(name, ' ');
    if (name.empty())
      throw UsageError("--local-gpus " + text + ": a name is empty; want names with commas between them");
    if (std::ranges::find(gpus, name, &OwnGpu::id) != gpus.end()) continue;
    gpus.push_back({static_cast<std::uint32_t>(gpus.size()), name});
  }
  return gpus;
}

std::string listed(const std::vector<os::GpuDevice>& devices) {
  std::string text;
  for (const auto& device : devices) {
    text += (text.empty() ? "" : ", ") + std::to_string(device.number) + " (" + device.id + ")";
  }
  return text;
}

void find_gpus(const MachineSettings& settings, OwnMachine& machine) {
  if (settings.gpus == "none") {
    machine.gpus_from = "--local-gpus none";
    return;
  }
  const auto devices = ask_driver(settings.library);
  std::string unknown;
  if (!settings.gpus.empty()) {
    machine.gpus_from = "--local-gpus";
    machine.gpus =
        devices.empty() ? named_gpus(settings.gpus) : own_gpus(os::devices_named(devices, settings.gpus, &unknown));
    if (unknown.empty()) return;
    throw UsageError("--local-gpus " + settings.gpus + ": the driver knows no GPU \"" + unknown + "\"; it has " +
                     listed(devices));
  }
  if (const char* visible = std::getenv(kVisible); visible != nullptr) {
    machine.gpus = own_gpus(os::devices_named(devices, visible, &unknown));
    machine.gpus_from = std::string(kVisible) + "=" + visible + " of musterd";
    machine.gpus_remedy = "or name more GPUs with musterd --local-gpus";
    if (!unknown.empty() && !devices.empty()) {
      spdlog::warn("{}={}: the driver knows no GPU \"{}\", so the list ends there; it has {}", kVisible, visible,
                   unknown, listed(devices));
    }
    return;
  }
  machine.gpus = own_gpus(devices);
  if (!devices.empty() || !os::has_gpu_device(settings.devices)) return;
  machine.gpus_from = "no driver lists its GPUs";
  machine.gpus_remedy = "or name its GPUs with musterd --local-gpus 0,1,...";
  machine.problem =
      "no local job can have a GPU: this machine has some, but no driver lists them; start musterd again when "
      "nvidia-smi "
      "does, or name them with --local-gpus 0,1,...";
}

std::uint32_t usable_cores() {
  for (int most = 1024; most <= (1 << 20); most *= 2) {
    cpu_set_t* set = CPU_ALLOC(most);
    const auto size = CPU_ALLOC_SIZE(most);
    const bool known = set != nullptr && ::sched_getaffinity(0, size, set) == 0;
    const int count = known ? CPU_COUNT_S(size, set) : 0;
    CPU_FREE(set);
    if (known) return static_cast<std::uint32_t>(std::max(count, 1));
  }
  return std::max(1u, std::thread::hardware_concurrency());
}

std::uint32_t cores_of(const std::string& text) {
  if (text == "off") return 0;
  if (text == "auto") return usable_cores();
  std::uint32_t cores = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), cores);
  if (error == std::errc() && end == text.data() + text.size() && cores >= 1 && cores <= kMostCores) return cores;
  throw UsageError("--local-cores " + text + ": want auto, off, or a number from 1 to " + std::to_string(kMostCores));
}

}  // namespace

OwnMachine find_own_machine(const MachineSettings& settings) {
  OwnMachine machine;
  machine.name = os::host_name();
  machine.cores = cores_of(settings.cores);
  find_gpus(settings, machine);
  return machine;
}

std::string own_machine_text(const OwnMachine& machine) {
  const std::string from = machine.gpus_from.empty() ? "" : " (" + machine.gpus_from + ")";
  const std::string gpus = machine.gpus.empty() ? "no GPU" : core::count_text(machine.gpus.size(), "GPU");
  const std::string cores =
      machine.cores == 0 ? "; cores are not counted" : " and " + core::count_text(machine.cores, "core");
  return "local jobs share " + gpus + from + cores;
}

}  // namespace musterd
