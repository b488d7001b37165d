#pragma once

#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>

#include "controller/common/loop.h"
#include "controller/executors/own_machine.h"

namespace musterd {

struct MachineSettings {
  std::string gpus = {};             // --local-gpus; empty: not given
  std::string cores = "auto";        // --local-cores: "auto", "off" or a number
  std::string library = {};          // NVML; empty: the driver's
  std::filesystem::path root = "/";  // where the kernel shows GPUs: base::signs_of_gpus()
};

/// GPUs and cores that attempts on this machine may have: the GPUs that --local-gpus names, else those of
/// CUDA_VISIBLE_DEVICES, else all that the driver lists, and the cores that musterd may use (base::core_limit()). Where
/// no driver lists GPUs, the names of --local-gpus are taken as they are, and there are none without it. But a rank
/// that is given no GPU sees none, unless the kernel shows no GPU either, or --local-gpus is "open". Throws UsageError.
executors::OwnMachine find_own_machine(const MachineSettings& settings);

/// One line for the log: "local jobs share 2 GPUs (--local-gpus) and 16 cores".
std::string own_machine_text(const executors::OwnMachine& machine);

/// Asks again while no GPUs are known that nobody has named or ruled out: a driver may be silent at the start of a
/// machine. One that does not answer is asked by one thread, which outlives the watch. Thread-safe.
class MachineWatch {
 public:
  static constexpr std::chrono::seconds kEvery{30};
  using Find = std::function<executors::OwnMachine()>;
  using Changed = std::function<void(const executors::OwnMachine&)>;

  /// `find`: as find_own_machine(), however long it takes. `changed` is called in the watch's thread.
  MachineWatch(const MachineSettings& settings, executors::OwnMachine now, Changed changed, Find find = {},
               bool threads = true);
  void start() { loop_.start(kEvery); }
  /// Only without threads.
  void look() { loop_.step(); }

 private:
  struct Look;
  std::optional<core::Millis> step();

  const bool may_change_;
  executors::OwnMachine now_;
  const Changed changed_;
  const Find find_;
  std::shared_ptr<Look> look_;  // under way
  common::Loop loop_;
};

}  // namespace musterd
