#include "controller/musterd/executors.h"

#include <pwd.h>
#include <unistd.h>

#include <spdlog/spdlog.h>

#include <algorithm>
#include <cstring>
#include <mutex>
#include <sstream>
#include <utility>

#include "base/cgroups.h"
#include "base/command.h"
#include "base/gpus.h"
#include "base/host_name.h"
#include "base/numbers.h"
#include "base/patience.h"
#include "base/usage_error.h"
#include "controller/common/tokens.h"
#include "controller/core/core_text.h"
#include "controller/executors/slurm/slurm_attempt.h"
#include "controller/executors/slurm/slurm_submission.h"

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
  const auto cores = base::whole_number<std::uint32_t>(text);
  if (cores && *cores >= 1 && *cores <= kMostCores) return *cores;
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

namespace fs = std::filesystem;

// The files that Slurm's commands read without SLURM_CONF. slurmd writes the last one when slurmctld sends it the
// configuration.
constexpr const char* kSlurmConfs[] = {"/etc/slurm/slurm.conf", "/etc/slurm-llnl/slurm.conf",
                                       "/run/slurm/conf/slurm.conf"};

// The error of a Slurm command that finds no configuration or cannot read it; empty: it has one. A command that gets no
// answer from slurmctld has found its configuration.
std::string configuration_problem(base::CommandRunner& runner) {
  base::Command ask;
  ask.argv = {"sinfo", "--noheader", "--format=%R"};
  ask.time_limit = std::chrono::milliseconds(10'000);
  ask.unset = {"SINFO_*"};
  const auto said = runner.run(ask);
  if (!said.could_not_start.empty()) return said.could_not_start;
  for (const char* sign : {"configuration source", "process configuration file", "s_p_parse_file"}) {
    if (said.err.find(sign) == std::string::npos) continue;
    auto text = said.err;
    while (!text.empty() && text.back() == '\n') text.pop_back();
    std::ranges::replace(text, '\n', ';');
    return text;
  }
  return {};
}

std::string own_user() {
  const passwd* entry = ::getpwuid(::geteuid());
  return entry == nullptr ? std::to_string(::geteuid()) : entry->pw_name;
}

bool can_run(const fs::path& file) {
  return ::access(file.c_str(), X_OK) == 0 && !fs::is_directory(file);
}

std::string missing_agent(const fs::path& file) {
  return file.string() +
         " is missing or cannot be run; install muster-agent beside musterd (./dev build makes all programs), or name "
         "it with --agent";
}

}  // namespace

std::string reason_against_slurm(const std::string& wanted, base::CommandRunner& runner) {
  if (wanted == "no") return "musterd was started with --slurm no; start it with --slurm auto";
  for (const char* name : {"sbatch", "sinfo"}) {
    if (!base::find_in_path(name)) {
      return std::string("there is no ") + name +
             " in musterd's PATH; install Slurm's commands, and start musterd again";
    }
  }
  const std::string remedy = "; set SLURM_CONF to the cluster's slurm.conf, and start musterd again";
  const auto named = environment("SLURM_CONF");
  if (!named.empty() && !fs::exists(named)) return "SLURM_CONF names " + named + ", which does not exist" + remedy;
  if (wanted == "yes") {
    const auto problem = configuration_problem(runner);
    return problem.empty() ? "" : "Slurm's commands have no usable configuration (" + problem + ")" + remedy;
  }
  if (!named.empty()) return {};
  const bool found = std::ranges::any_of(kSlurmConfs, [](const char* file) { return fs::exists(file); });
  return found ? ""
               : std::string("sbatch is installed, but there is no slurm.conf (looked for ") + kSlurmConfs[0] + ")" +
                     remedy + ", with --slurm yes if the cluster sends it";
}

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
      loop_("machine", "this machine's GPUs could not be looked for", threads, [this] { return step(); }) {}

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

fs::path program(const std::string& given, const std::string& name) {
  if (!given.empty()) {
    if (!can_run(given)) {
      throw base::UsageError("--" + name.substr(std::strlen("muster-")) + " " + given +
                             ": the file is missing or cannot be run; without this flag musterd uses the " + name +
                             " beside it");
    }
    return fs::absolute(given);
  }
  return base::programs_folder() / name;
}

Executors::Executors(const ExecutorSettings& settings, common::Clock& clock)
    : agent_(program(settings.agent, "muster-agent")),
      local_(executors::local::make_local_executor({.root = settings.data,
                                                    .agent_program = agent_,
                                                    .open_files = settings.open_files,
                                                    .machine = settings.machine})),
      runner_(true, settings.open_files) {
  why_no_slurm_ = reason_against_slurm(settings.slurm, runner_);
  // Without muster-agent every attempt on Slurm would fail, until the job's budget is spent.
  agent_is_missing_ = why_no_slurm_.empty() && !can_run(agent_);
  if (agent_is_missing_) why_no_slurm_ = missing_agent(agent_) + ", and start musterd again";
  if (settings.slurm == "yes" && !why_no_slurm_.empty()) throw base::UsageError("--slurm yes: " + why_no_slurm_);
  if (!why_no_slurm_.empty()) return;
  // An attempt waits this long for accounting. A listing waits with it.
  const std::chrono::milliseconds history = executors::on_slurm::SlurmAttempt::kHistoryPatience;
  // A controller that asks as often as tests do gives a listing up sooner, too.
  const auto list = std::min<core::Millis>(slurm::ClientOptions{}.list_limit, 100 * settings.slurm_poll);
  client_ = std::make_unique<slurm::Client>(
      runner_, slurm::ClientOptions{.conf = environment("SLURM_CONF"), .list_limit = list, .history_limit = history});
  slurm_ = executors::on_slurm::make_slurm_executor(
      *client_, clock,
      // muster-agent needs the same libraries as musterd.
      executors::on_slurm::SlurmOptions{settings.data, agent_, environment("LD_LIBRARY_PATH"),
                                        common::store_name(settings.secret), own_user(), settings.slurm_poll});
  both_ = executors::make_routing_executor(*local_, *slurm_);
}

std::vector<std::string> Executors::problems() const {
  std::vector<std::string> all;
  if (!can_run(agent_)) all.push_back("no job can run: " + missing_agent(agent_));
  if (auto problem = local_->own_machine().problem; !problem.empty()) all.push_back(std::move(problem));
  if (agent_is_missing_) all.push_back("no job can go to Slurm: " + why_no_slurm_);
  return all;
}

}  // namespace musterd
