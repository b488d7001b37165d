#include "controller/musterd/find_machine.h"

#include <spdlog/spdlog.h>

#include <algorithm>
#include <charconv>
#include <chrono>
#include <mutex>
#include <optional>
#include <sstream>
#include <utility>

#include "base/cgroups.h"
#include "base/gpus.h"
#include "base/host_name.h"
#include "base/patience.h"
#include "base/usage_error.h"
#include "controller/core/core_text.h"
#include "controller/musterd/musterd_environment.h"

namespace musterd {
namespace {

using executors::OwnGpu;
using executors::OwnMachine;

constexpr std::uint32_t kMostCores = 65536;
constexpr const char* kVisible = "CUDA_VISIBLE_DEVICES";
constexpr const char *kNone = "none", *kOpen = "open";

bool sees_none(const std::string& visible) {
  return visible.empty() || visible == "-1";
}

std::vector<base::GpuDevice> devices_of(const std::string& library) {
  const auto gpus = library.empty() ? base::open_nvml() : base::open_nvml(library.c_str());
  return gpus == nullptr ? std::vector<base::GpuDevice>() : gpus->devices();
}

/// A driver that hangs keeps a thread, and musterd starts without its GPUs.
std::vector<base::GpuDevice> ask_driver(const std::string& library) {
  constexpr std::chrono::seconds kDriverPatience{15};
  auto devices =
      base::ask_within<std::vector<base::GpuDevice>>(kDriverPatience, [library] { return devices_of(library); });
  if (devices) return std::move(*devices);
  spdlog::warn("the driver of this machine's GPUs did not answer within {} s", kDriverPatience.count());
  return {};
}

std::vector<OwnGpu> own_gpus(const std::vector<base::GpuDevice>& devices) {
  std::vector<OwnGpu> gpus;
  for (const auto& device : devices) {
    gpus.push_back({device.number, device.id, device.name, {device.number, device.gpu}});
  }
  return gpus;
}

/// GPUs as they are written in `text`, each once: nobody lists what there is.
std::vector<OwnGpu> named_gpus(const std::string& text) {
  std::vector<OwnGpu> gpus;
  std::istringstream list(text);
  for (std::string name; std::getline(list, name, ',');) {
    std::erase(name, ' ');
    if (name.empty())
      throw base::UsageError("--local-gpus " + text + ": a name is empty; want names with commas between them");
    if (std::ranges::find(gpus, name, &OwnGpu::id) != gpus.end()) continue;
    const auto known = executors::identity_by_name(name);
    gpus.push_back({known.number.value_or(static_cast<std::uint32_t>(gpus.size())), name, {}, known});
  }
  return gpus;
}

std::string listed(const std::vector<base::GpuDevice>& devices) {
  std::string text;
  for (const auto& device : devices) {
    text += (text.empty() ? "" : ", ") + std::to_string(device.number) + " (" + device.id + ")";
  }
  return text;
}

/// The kernel shows GPUs, and nobody lists them.
void set_unlisted(const base::GpuSigns& signs, OwnMachine& machine) {
  machine.hides_gpus = true;
  machine.is_unsure = signs.nvidia;
  machine.gpus_from = "this machine has GPUs, but no driver lists them";
  machine.gpus_remedy = "or name them with musterd --local-gpus 0,1,...";
  machine.problem = "no local job can have a GPU: " + machine.gpus_from + "; " +
                    (signs.nvidia ? "see whether nvidia-smi answers, which musterd asks again every " +
                                        std::to_string(MachineWatch::kEvery.count()) + " s, "
                                  : "") +
                    machine.gpus_remedy;
}

/// `ask` gives what the driver lists, and is called where that matters.
void find_gpus(const MachineSettings& settings, const std::function<std::vector<base::GpuDevice>()>& ask,
               OwnMachine& machine) {
  if (settings.gpus == kNone || settings.gpus == kOpen) {
    machine.gpus_from = "--local-gpus " + settings.gpus;
    machine.gpus_remedy = "or start musterd without --local-gpus " + settings.gpus;
    machine.hides_gpus = settings.gpus == kNone;
    return;
  }
  const auto devices = ask();
  const auto signs = base::signs_of_gpus(settings.root);
  std::string unknown;
  if (!settings.gpus.empty()) {
    machine.gpus_from = "--local-gpus";
    machine.gpus =
        devices.empty() ? named_gpus(settings.gpus) : own_gpus(base::devices_named(devices, settings.gpus, &unknown));
    if (unknown.empty()) return;
    throw base::UsageError("--local-gpus " + settings.gpus + ": the driver knows no GPU \"" + unknown + "\"; it has " +
                           listed(devices));
  }
  if (const char* visible = std::getenv(kVisible); visible != nullptr) {
    machine.gpus = own_gpus(base::devices_named(devices, visible, &unknown));
    if (devices.empty() && signs.any && !sees_none(visible)) return set_unlisted(signs, machine);
    machine.gpus_from = std::string(kVisible) + "=" + visible + " of musterd";
    machine.gpus_remedy = "or name more GPUs with musterd --local-gpus";
    if (!unknown.empty() && !devices.empty()) {
      spdlog::warn("{}={}: the driver knows no GPU \"{}\", so the list ends there; it has {}", kVisible, visible,
                   unknown, listed(devices));
    }
    return;
  }
  machine.gpus = own_gpus(devices);
  if (devices.empty() && signs.any) set_unlisted(signs, machine);
}

std::uint32_t cores_of(const std::string& text) {
  if (text == "off") return 0;
  if (text == "auto") return base::core_limit().cores;
  std::uint32_t cores = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), cores);
  if (error == std::errc() && end == text.data() + text.size() && cores >= 1 && cores <= kMostCores) return cores;
  throw base::UsageError("--local-cores " + text + ": want auto, off, or a number from 1 to " +
                         std::to_string(kMostCores));
}

OwnMachine find_by(const MachineSettings& settings, const std::function<std::vector<base::GpuDevice>()>& ask) {
  OwnMachine machine;
  machine.name = base::host_name();
  machine.cores = cores_of(settings.cores);
  find_gpus(settings, ask, machine);
  return machine;
}

}  // namespace

OwnMachine find_own_machine(const MachineSettings& settings) {
  return find_by(settings, [&] { return ask_driver(settings.library); });
}

/// One look at the machine, which may outlive the watch.
struct MachineWatch::Look {
  std::mutex mutex;
  std::optional<OwnMachine> found;
};

MachineWatch::MachineWatch(const MachineSettings& settings, OwnMachine now, Changed changed, Find find, bool threads)
    : may_change_(settings.gpus.empty() && !(std::getenv(kVisible) != nullptr && sees_none(std::getenv(kVisible)))),
      now_(std::move(now)),
      changed_(std::move(changed)),
      find_(find ? std::move(find)
                 : [settings] { return find_by(settings, [&] { return devices_of(settings.library); }); }),
      loop_("this machine's GPUs could not be looked for", threads, [this] { return step(); }) {}

std::optional<core::Millis> MachineWatch::step() {
  constexpr core::Millis kAnswersIn{200}, kLookWhetherAnswered{1000};
  if (!may_change_ || !now_.gpus.empty()) return std::nullopt;
  if (!look_) {
    look_ = std::make_shared<Look>();
    base::run_within(kAnswersIn, "the GPUs", [look = look_, find = find_] {
      try {
        auto machine = find();
        const std::lock_guard lock(look->mutex);
        look->found = std::move(machine);
      } catch (const std::exception& error) {
        spdlog::warn("this machine's GPUs could not be looked for: {}", error.what());
      }
    });
  }
  std::optional<OwnMachine> found;
  {
    const std::lock_guard lock(look_->mutex);
    found = std::move(look_->found);
  }
  // The driver's thread is the only other one that knows of the look.
  if (!found && look_.use_count() > 1) return kLookWhetherAnswered;
  look_.reset();
  if (!found || *found == now_) return kEvery;
  now_ = std::move(*found);
  spdlog::info("found later: {}", own_machine_text(now_));
  changed_(now_);
  return kEvery;
}

std::string own_machine_text(const OwnMachine& machine) {
  const std::string from = machine.gpus_from.empty() ? "" : " (" + machine.gpus_from + ")";
  const std::string gpus = machine.gpus.empty() ? "no GPU" : core::count_text(machine.gpus.size(), "GPU");
  const std::string cores =
      machine.cores == 0 ? "; cores are not counted" : " and " + core::count_text(machine.cores, "core");
  return "local jobs share " + gpus + from + cores;
}

}  // namespace musterd
